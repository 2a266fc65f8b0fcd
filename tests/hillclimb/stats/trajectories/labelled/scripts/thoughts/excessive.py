"""Thoughts that make up most of what was sampled."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import (
    begin,
    end_somehow,
    end_well,
    go_on,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "excessive_thinking"
_LONG = (50, 90)
"""Sentences of a long thought: about 17 tokens each, 90 characters."""
_LONG_WORDS = (
    "Internationalisation, reorganisation, misinterpretation and telecommunication"
    " characteristically overcomplicate straightforward responsibilities",
    "Notwithstanding aforementioned circumstances, comprehensive recommendations"
    " acknowledging institutional interdependencies",
    "Representatives subsequently reconsidered disproportionately controversial"
    " administrative classifications",
)


def _sentences(agent: Agent) -> int:
    return agent.rng.randint(*_LONG)


async def _one_long_thought(agent: Agent) -> None:
    await begin(agent)
    await agent.turn(agent.lookup(), thought=agent.muse(_sentences(agent)))
    await go_on(agent)


async def _before_the_first_call(agent: Agent) -> None:
    thought = agent.muse(_sentences(agent), joint="\n")
    await agent.turn(agent.lookup(), thought=thought)
    await agent.solve()
    await end_well(agent)


async def _every_turn(agent: Agent) -> None:
    for _ in range(agent.rng.randint(4, 7)):
        await agent.turn(agent.lookup(), thought=agent.muse(agent.rng.randint(14, 20)))
    await end_somehow(agent)


async def _at_the_end(agent: Agent) -> None:
    await agent.solve()
    await agent.turn(thought=agent.muse(_sentences(agent)), is_done=True)


async def _cut_in_thought(agent: Agent) -> None:
    await begin(agent)
    await agent.cut(agent.muse(_sentences(agent)))


async def _nothing_but_thought(agent: Agent) -> None:
    for _ in range(agent.rng.randint(2, 4)):
        await agent.say("", thought=agent.muse(agent.rng.randint(26, 40)))
    await agent.stop(StopReason.MAX_TURNS)


async def _long_text_too(agent: Agent) -> None:
    """Think much, and write more outside of thoughts."""
    thought = agent.muse(_sentences(agent))
    text = agent.muse(2 * len(thought.sentences) // 3 + 10).text
    await agent.turn(agent.lookup(), thought=thought, text=text)
    await go_on(agent)


async def _short_rollout(agent: Agent) -> None:
    """Think most of the time, in a rollout that is short."""
    for _ in range(agent.rng.randint(1, 2)):
        await agent.turn(agent.lookup(), thought=agent.muse(agent.rng.randint(6, 8)))
    await agent.solve(but=1)
    await end_somehow(agent)


async def _reasons_in_text(agent: Agent) -> None:
    """Reason at length outside of thoughts."""
    await begin(agent)
    await agent.turn(agent.lookup(), thought=agent.muse(1), text=agent.muse(_sentences(agent)).text)
    await go_on(agent)


async def _many_calls(agent: Agent) -> None:
    """Think in every turn of a long rollout, though the calls are longer."""
    for _ in range(agent.rng.randint(16, 18)):
        steps = [agent.lookup() for _ in range(5)]
        await agent.turn(*steps, thought=agent.muse(2))
    await end_somehow(agent)


async def _few_tokens_many_characters(agent: Agent) -> None:
    """Think in long words: above 2,048 characters, and far below 512 tokens."""
    words = agent.rng.sample(_LONG_WORDS, 3)
    sentences = [f"{word} ({number})" for number in range(5) for word in words]
    await agent.turn(agent.lookup(), thought=Thought(tuple(sentences)))
    await agent.solve(but=1)
    await end_somehow(agent)


async def _many_tokens_outside(agent: Agent) -> None:
    """Think most of the characters, but write digits and signs: most of the tokens."""
    thought = agent.muse(50)
    numbers = "".join(str(agent.rng.randrange(10)) for _ in range(900))
    await agent.turn(agent.lookup(), thought=thought, text=f"[{numbers}]")
    await agent.finish()


SCRIPTS = (
    Script(family=FAMILY, kind="one-long-thought", play=_one_long_thought, times=6),
    Script(family=FAMILY, kind="before-the-first-call", play=_before_the_first_call, times=5),
    Script(family=FAMILY, kind="every-turn", play=_every_turn, times=5),
    Script(family=FAMILY, kind="at-the-end", play=_at_the_end),
    Script(family=FAMILY, kind="cut-in-thought", play=_cut_in_thought, times=5),
    Script(family=FAMILY, kind="nothing-but-thought", play=_nothing_but_thought),
    Script(family=FAMILY, kind="long-text-too", play=_long_text_too, is_near_miss=True, times=5),
    Script(
        family=FAMILY,
        kind="short-rollout",
        play=_short_rollout,
        is_near_miss=True,
        times=5,
        setting=Setting(max_calls=2, thinks=0.0),
    ),
    Script(family=FAMILY, kind="reasons-in-text", play=_reasons_in_text, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="many-calls",
        play=_many_calls,
        is_near_miss=True,
        setting=Setting(dialect="plain"),
    ),
    Script(
        family=FAMILY,
        kind="few-tokens-many-characters",
        play=_few_tokens_many_characters,
        is_near_miss=True,
        setting=Setting(source="own", max_calls=2, thinks=0.0),
    ),
    Script(
        family=FAMILY,
        kind="many-tokens-outside",
        play=_many_tokens_outside,
        is_near_miss=True,
        setting=Setting(source="own"),
    ),
)
