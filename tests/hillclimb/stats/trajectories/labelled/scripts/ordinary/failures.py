"""Rollouts that end in a wrong state, for no scripted reason."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import begin, spoil
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "ordinary"


async def _wrong_text(agent: Agent) -> None:
    await agent.look(2)
    await spoil(agent)
    await agent.finish()


async def _last_change_missing(agent: Agent) -> None:
    await agent.look(agent.rng.randint(2, 4))
    await agent.solve(but=1)
    await agent.finish()


async def _interrupted(agent: Agent) -> None:
    await agent.look(2)
    await begin(agent)
    await agent.stop(StopReason.INFRA_ERROR)


async def _too_slow(agent: Agent) -> None:
    await begin(agent)
    await agent.look(2)
    await agent.stop(StopReason.POLICY_DEADLINE)


async def _ungraded(agent: Agent) -> None:
    await agent.look(1)
    await agent.solve()
    await agent.finish()


SCRIPTS = (
    Script(family=FAMILY, kind="wrong-text", play=_wrong_text, times=16),
    Script(family=FAMILY, kind="last-change-missing", play=_last_change_missing, times=16),
    Script(family=FAMILY, kind="interrupted", play=_interrupted, times=8),
    Script(family=FAMILY, kind="too-slow", play=_too_slow, times=8),
    Script(family=FAMILY, kind="ungraded", play=_ungraded, times=8, setting=Setting(grades=False)),
)
