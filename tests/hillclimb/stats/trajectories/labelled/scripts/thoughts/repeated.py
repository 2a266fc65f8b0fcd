"""The same thought again and again."""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, end_somehow, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "thought_repetition"
_FILLERS = ("Okay, let me see.", "Hmm.", "Next step.", "Wait.", "Let me think.", "OK")
_LOOPS = (
    "Wait, I should check whether the first entry is really the right one.",
    "Actually, let me reconsider what the user wants from me in this request.",
    "But maybe the tool needs the other identifier, so let me think about it again.",
    "I need to call the tool now, and then I need to say that I am finished.",
)


async def _same_in_three_turns(agent: Agent) -> None:
    thought = agent.muse(agent.rng.randint(1, 3))
    for _ in range(agent.rng.randint(3, 6)):
        await agent.turn(agent.lookup(), thought=thought)
    await go_on(agent)


async def _same_with_other_thoughts_between(agent: Agent) -> None:
    thought = agent.muse(agent.rng.randint(1, 2))
    for _ in range(agent.rng.randint(3, 4)):
        await agent.turn(agent.lookup(), thought=thought)
        await agent.turn(agent.lookup(), thought=agent.muse())
    await end_somehow(agent)


async def _same_but_for_case_and_space(agent: Agent) -> None:
    (sentence,) = agent.muse().sentences
    variants = (sentence, sentence.upper(), f"  {sentence.replace(' ', '  ')} ", sentence.lower())
    for variant in variants[: agent.rng.randint(3, 4)]:
        await agent.turn(agent.lookup(), thought=Thought((variant,)))
    await go_on(agent)


async def _loop_in_one_thought(agent: Agent) -> None:
    loop = agent.rng.sample(_LOOPS, agent.rng.randint(1, 2)) * agent.rng.randint(5, 9)
    joint = agent.rng.choice((" ", "\n", "\n\n"))
    await begin(agent)
    await agent.turn(agent.lookup(), thought=Thought(tuple(loop), joint))
    await go_on(agent)


async def _sentence_over_turns(agent: Agent) -> None:
    sentence = agent.rng.choice(_LOOPS)
    for _ in range(agent.rng.randint(5, 7)):
        parts = [*agent.muse(agent.rng.randint(0, 2)).sentences, sentence]
        agent.rng.shuffle(parts)
        await agent.turn(agent.lookup(), thought=Thought(tuple(parts)))
    await end_somehow(agent)


async def _cut_in_a_loop(agent: Agent) -> None:
    await begin(agent)
    loop = agent.rng.sample(_LOOPS, agent.rng.randint(1, 3)) * agent.rng.randint(15, 30)
    await agent.cut(Thought(tuple(loop), agent.rng.choice((" ", "\n"))))


async def _fillers(agent: Agent) -> None:
    filler = agent.rng.choice(_FILLERS)
    for _ in range(agent.rng.randint(4, 9)):
        await agent.turn(agent.lookup(), thought=Thought((filler,)))
    await go_on(agent)


async def _task_restated(agent: Agent) -> None:
    restated = Thought((f"The task says: {agent.task.prompt.replace('. ', '; ')}",))
    await agent.turn(agent.lookup(), thought=restated)
    await agent.look(agent.rng.randint(0, 3))
    await agent.turn(agent.lookup(), thought=restated)
    await go_on(agent)


async def _similar(agent: Agent) -> None:
    for number in range(agent.rng.randint(4, 8)):
        words = f"Entry number {number + 1} of the list does not look like the one in the task."
        await agent.turn(agent.lookup(), thought=Thought((words,)))
    await go_on(agent)


async def _same_text(agent: Agent) -> None:
    """Repeat the text outside of thoughts."""
    text = agent.rng.choice(_LOOPS)
    for _ in range(agent.rng.randint(5, 7)):
        await agent.turn(agent.lookup(), text=text)
    await go_on(agent)


async def _three_times_in_one(agent: Agent) -> None:
    """Repeat a sentence within a thought or two, fewer than five times."""
    sentence = agent.rng.choice(_LOOPS)
    for times in agent.rng.choice(((3,), (2, 2), (2, 1), (4,))):
        parts = [*agent.muse(2).sentences, *[sentence] * times]
        agent.rng.shuffle(parts)
        await agent.turn(agent.lookup(), thought=Thought(tuple(parts)))
    await go_on(agent)


async def _short_sentences_in_one(agent: Agent) -> None:
    """Repeat short sentences many times within a thought."""
    short = agent.rng.choice(("Hmm, wait.", "Let me see.", "No, not this one.", "Or is it?"))
    joint = agent.rng.choice((" ", "\n"))
    await agent.turn(agent.lookup(), thought=Thought((short,) * agent.rng.randint(8, 12), joint))
    await go_on(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="same-in-three-turns", play=_same_in_three_turns, times=6),
    Script(
        family=FAMILY,
        kind="same-with-others-between",
        play=_same_with_other_thoughts_between,
        times=5,
    ),
    Script(
        family=FAMILY,
        kind="same-but-for-case-and-space",
        play=_same_but_for_case_and_space,
        times=5,
    ),
    Script(family=FAMILY, kind="loop-in-one-thought", play=_loop_in_one_thought, times=6),
    Script(family=FAMILY, kind="sentence-over-turns", play=_sentence_over_turns, times=5),
    Script(family=FAMILY, kind="cut-in-a-loop", play=_cut_in_a_loop, times=5),
    Script(family=FAMILY, kind="fillers", play=_fillers, is_near_miss=True, times=5),
    Script(family=FAMILY, kind="task-restated", play=_task_restated, is_near_miss=True),
    Script(family=FAMILY, kind="similar", play=_similar, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="same-text",
        play=_same_text,
        is_near_miss=True,
        setting=Setting(thinks=0.5),
    ),
    Script(
        family=FAMILY, kind="fewer-than-five", play=_three_times_in_one, is_near_miss=True, times=5
    ),
    Script(
        family=FAMILY,
        kind="short-sentences-in-one",
        play=_short_sentences_in_one,
        is_near_miss=True,
    ),
)
