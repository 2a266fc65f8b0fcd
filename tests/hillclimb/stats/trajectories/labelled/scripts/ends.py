"""Endings that several scripts share."""

from __future__ import annotations

from hillclimb.environment.base import ToolCall
from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled.agent.agent import Agent
from tests.hillclimb.stats.trajectories.labelled.agent.facts import Says
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step
from tests.hillclimb.stats.trajectories.labelled.material.closings import ADMISSIONS, claim

_TEXTS = {
    "book_room": "guest",
    "send_mail": "text",
    "comment": "text",
    "comment_issue": "text",
    "open_issue": "title",
    "create_post": "title",
    "create_ticket": "title",
    "log_activity": "text",
    "add_event": "title",
}
"""Free text of tools, which the verifier compares and the app does not."""


async def claim_done(agent: Agent) -> None:
    """Say `<done>` and that the task is completed."""
    await agent.finish(claim(agent.task.env_key, agent.rng), Says.COMPLETED)


async def admit(agent: Agent) -> None:
    """Say `<done>` and that it did not work, or only partly."""
    await agent.finish(agent.rng.choice(ADMISSIONS), Says.FAILED)


async def end_well(agent: Agent) -> None:
    """End a rollout that reached its goal."""
    if agent.rng.random() < 0.5:
        await claim_done(agent)
    else:
        await agent.finish()


async def end_somehow(agent: Agent) -> None:
    """End a rollout that reached nothing."""
    match agent.rng.randrange(5):
        case 0:
            await claim_done(agent)
        case 1:
            await admit(agent)
        case 2:
            await agent.finish()
        case 3:
            await agent.stop(StopReason.MAX_TURNS)
        case _:
            await agent.stop(StopReason.POLICY_DEADLINE)


async def go_on(agent: Agent) -> None:
    """Solve the rest of the task, or leave its last change out."""
    if agent.rng.random() < 0.5:
        await agent.solve()
        await end_well(agent)
    else:
        await agent.solve(but=1)
        await end_somehow(agent)


async def spoil(agent: Agent) -> None:
    """Make the expert's calls, but the last one with another text, or not at all."""
    await agent.solve(but=1)
    step = agent.next_call
    name = _TEXTS.get(step.name)
    if name is not None:
        arguments = {**step.arguments, name: f"{step.arguments[name]}, please"}
        await agent.turn(Step.of(ToolCall(name=step.name, arguments=arguments)))


async def begin(agent: Agent) -> None:
    """Make some of the expert's calls, the last one never."""
    for _ in range(agent.rng.randrange(agent.plan.left)):
        await agent.advance()
