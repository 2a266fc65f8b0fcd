"""Claims of a completed task that is not."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Says
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought
from tests.hillclimb.stats.trajectories.labelled.material.closings import (
    CLAIMS,
    NEITHER,
    claim,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import (
    admit,
    begin,
    claim_done,
    spoil,
)
from tests.hillclimb.stats.trajectories.labelled.scripts.foreign import answered
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "false_completion"


async def _last_change_missing(agent: Agent) -> None:
    await agent.solve(but=1)
    await claim_done(agent)


async def _wrong_change(agent: Agent) -> None:
    await spoil(agent)
    await claim_done(agent)


async def _only_looked(agent: Agent) -> None:
    await agent.look(agent.rng.randint(2, 5))
    await claim_done(agent)


async def _with_the_last_call(agent: Agent) -> None:
    await agent.solve(but=1)
    text = claim(agent.task.env_key, agent.rng)
    await agent.turn(agent.lookup(), text=text, is_done=True, says=Says.COMPLETED)


async def _change_went_unheard(agent: Agent) -> None:
    """Make the last change, which the platform answers and does not carry out."""
    await agent.solve(but=1)
    await agent.turn(answered(agent.next_call, '{"ok": true}'))
    await claim_done(agent)


async def _admits(agent: Agent) -> None:
    await agent.solve(but=1)
    await admit(agent)


async def _says_nothing(agent: Agent) -> None:
    await spoil(agent)
    await agent.finish()


async def _claims_rightly(agent: Agent) -> None:
    await agent.solve()
    await claim_done(agent)


async def _claims_without_done(agent: Agent) -> None:
    await begin(agent)
    await agent.say(claim(agent.task.env_key, agent.rng), says=Says.COMPLETED)
    await agent.stop(agent.rng.choice((StopReason.MAX_TURNS, StopReason.POLICY_DEADLINE)))


async def _claims_in_thought(agent: Agent) -> None:
    await agent.solve(but=1)
    words = agent.rng.choice([each for each in CLAIMS if "\n" not in each and ". " not in each])
    await agent.turn(thought=Thought((words.replace("! ", ", "),)), is_done=True)


async def _claims_earlier(agent: Agent) -> None:
    """Claim it in a turn before the last one, which has no words."""
    await agent.solve(but=1)
    await agent.turn(agent.lookup(), text=claim(agent.task.env_key, agent.rng))
    await agent.finish()


async def _says_something_else(agent: Agent) -> None:
    await agent.solve(but=1)
    await agent.finish(agent.rng.choice(NEITHER))


async def _no_grade(agent: Agent) -> None:
    await agent.solve(but=1)
    await claim_done(agent)


SCRIPTS = (
    Script(family=FAMILY, kind="last-change-missing", play=_last_change_missing, times=12),
    Script(family=FAMILY, kind="wrong-change", play=_wrong_change, times=8),
    Script(family=FAMILY, kind="only-looked", play=_only_looked, times=8),
    Script(family=FAMILY, kind="with-the-last-call", play=_with_the_last_call, times=6),
    Script(family=FAMILY, kind="change-went-unheard", play=_change_went_unheard, times=6),
    Script(family=FAMILY, kind="admits", play=_admits, is_near_miss=True, times=16),
    Script(family=FAMILY, kind="says-nothing", play=_says_nothing, is_near_miss=True),
    Script(family=FAMILY, kind="claims-rightly", play=_claims_rightly, is_near_miss=True, times=6),
    Script(family=FAMILY, kind="claims-without-done", play=_claims_without_done, is_near_miss=True),
    Script(family=FAMILY, kind="claims-in-thought", play=_claims_in_thought, is_near_miss=True),
    Script(family=FAMILY, kind="claims-earlier", play=_claims_earlier, is_near_miss=True),
    Script(
        family=FAMILY,
        kind="says-something-else",
        play=_says_something_else,
        is_near_miss=True,
        times=8,
    ),
    Script(
        family=FAMILY,
        kind="no-grade",
        play=_no_grade,
        is_near_miss=True,
        setting=Setting(grades=False),
    ),
)
