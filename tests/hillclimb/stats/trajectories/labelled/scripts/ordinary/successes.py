"""Rollouts that reach their goal."""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.setting import Setting
from tests.hillclimb.stats.trajectories.labelled.material.closings import PREAMBLES
from tests.hillclimb.stats.trajectories.labelled.scripts.ends import end_well
from tests.hillclimb.stats.trajectories.labelled.scripts.script import Script

FAMILY = "ordinary"


async def _straight(agent: Agent) -> None:
    await agent.solve()
    await end_well(agent)


async def _with_text(agent: Agent) -> None:
    while agent.plan.left:
        await agent.advance(text=agent.rng.choice(PREAMBLES))
    await end_well(agent)


async def _after_looking_around(agent: Agent) -> None:
    await agent.look(agent.rng.randint(1, 5))
    await agent.solve()
    await end_well(agent)


async def _several_calls_in_a_turn(agent: Agent) -> None:
    await agent.turn(*(agent.lookup() for _ in range(agent.rng.randint(2, 4))))
    await agent.solve()
    await end_well(agent)


async def _done_with_the_last_call(agent: Agent) -> None:
    await agent.solve(but=1)
    await agent.turn(agent.next_call, is_done=True)


SCRIPTS = (
    Script(family=FAMILY, kind="straight", play=_straight, times=16),
    Script(family=FAMILY, kind="with-text", play=_with_text, times=16),
    Script(family=FAMILY, kind="after-looking-around", play=_after_looking_around, times=16),
    Script(family=FAMILY, kind="several-calls-in-a-turn", play=_several_calls_in_a_turn, times=8),
    Script(family=FAMILY, kind="done-with-the-last-call", play=_done_with_the_last_call, times=8),
    Script(
        family=FAMILY,
        kind="identifiers",
        play=_straight,
        times=8,
        setting=Setting(dialect="naming"),
    ),
)
