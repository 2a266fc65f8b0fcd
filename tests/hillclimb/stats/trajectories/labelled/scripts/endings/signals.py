"""A policy that cannot say `<done>`."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Says
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.thought import NO_THOUGHT
from tests.hillclimb.stats.trajectories.labelled.material.closings import (
    LOOSE_ENDS,
    QUESTIONS,
    claim,
)
from tests.hillclimb.stats.trajectories.labelled.material.replies import UNREADABLE
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, claim_done, go_on
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "cannot_signal_done"
_LIMITS = (
    StopReason.MAX_TURNS,
    StopReason.MAX_TURNS,
    StopReason.MAX_TURNS,
    StopReason.MAX_INPUT_LENGTH,
    StopReason.POLICY_DEADLINE,
)


async def _stop_at_a_limit(agent: Agent) -> None:
    await agent.stop(agent.rng.choice(_LIMITS))


async def _claims_forever(agent: Agent) -> None:
    await agent.solve()
    text = claim(agent.task.env_key, agent.rng)
    for _ in range(agent.rng.randint(2, 7)):
        await agent.say(text, says=Says.COMPLETED)
    await _stop_at_a_limit(agent)


async def _claims_in_vain(agent: Agent) -> None:
    await begin(agent)
    for _ in range(agent.rng.randint(2, 5)):
        await agent.say(claim(agent.task.env_key, agent.rng), says=Says.COMPLETED)
    await _stop_at_a_limit(agent)


async def _wrong_words(agent: Agent) -> None:
    await agent.solve()
    for text in agent.rng.sample(LOOSE_ENDS, agent.rng.randint(2, 5)):
        await agent.say(text)
    await _stop_at_a_limit(agent)


async def _questions(agent: Agent) -> None:
    await agent.solve()
    for _ in range(agent.rng.randint(2, 4)):
        await agent.say(agent.rng.choice(QUESTIONS))
    await _stop_at_a_limit(agent)


async def _empty_turns(agent: Agent) -> None:
    await begin(agent)
    for _ in range(agent.rng.randint(2, 6)):
        await agent.say("", thought=NO_THOUGHT)
    await _stop_at_a_limit(agent)


async def _text_then_cut(agent: Agent) -> None:
    await agent.solve()
    await agent.say(agent.rng.choice(QUESTIONS))
    await agent.cut(agent.muse(8))


async def _never_a_call(agent: Agent) -> None:
    for _ in range(agent.rng.randint(3, 6)):
        await agent.say(f"Here is how I would do it. {agent.muse().text}")
    await _stop_at_a_limit(agent)


async def _one_turn(agent: Agent) -> None:
    await agent.solve()
    await agent.say(claim(agent.task.env_key, agent.rng), says=Says.COMPLETED)
    await _stop_at_a_limit(agent)


async def _recovers(agent: Agent) -> None:
    await begin(agent)
    for _ in range(agent.rng.randint(2, 4)):
        await agent.say(agent.rng.choice(QUESTIONS))
    await go_on(agent) if agent.rng.random() < 0.5 else await _then_runs_out(agent)


async def _then_runs_out(agent: Agent) -> None:
    await agent.look(agent.rng.randint(1, 3))
    await agent.stop(StopReason.MAX_TURNS)


async def _done_after_all(agent: Agent) -> None:
    await agent.solve()
    for _ in range(agent.rng.randint(2, 4)):
        await agent.say(agent.rng.choice(QUESTIONS + LOOSE_ENDS))
    await claim_done(agent)


async def _alternates(agent: Agent) -> None:
    for _ in range(agent.rng.randint(3, 5)):
        await agent.say("Let me look at that once more.")
        await agent.turn(agent.lookup())
    await agent.stop(StopReason.MAX_TURNS)


async def _unreadable_calls(agent: Agent) -> None:
    await begin(agent)
    for problem in agent.rng.sample(UNREADABLE, 2):
        await agent.unreadable(problem)
    await agent.stop(StopReason.MAX_TURNS)


async def _text_beside_calls(agent: Agent) -> None:
    for _ in range(agent.rng.randint(3, 6)):
        await agent.turn(agent.lookup(), text="The task is complete.", says=Says.COMPLETED)
    await _stop_at_a_limit(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="claims-forever", play=_claims_forever, times=6),
    Script(family=FAMILY, kind="claims-in-vain", play=_claims_in_vain, times=5),
    Script(family=FAMILY, kind="wrong-words", play=_wrong_words, times=6),
    Script(family=FAMILY, kind="questions", play=_questions),
    Script(family=FAMILY, kind="empty-turns", play=_empty_turns),
    Script(family=FAMILY, kind="text-then-cut", play=_text_then_cut),
    Script(family=FAMILY, kind="never-a-call", play=_never_a_call),
    Script(family=FAMILY, kind="one-turn", play=_one_turn, is_near_miss=True),
    Script(family=FAMILY, kind="recovers", play=_recovers, is_near_miss=True, times=5),
    Script(family=FAMILY, kind="done-after-all", play=_done_after_all, is_near_miss=True),
    Script(family=FAMILY, kind="alternates", play=_alternates, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="unreadable-calls",
        play=_unreadable_calls,
        is_near_miss=True,
        setting=Setting(source="own"),
    ),
    Script(family=FAMILY, kind="text-beside-calls", play=_text_beside_calls, is_near_miss=True),
)
