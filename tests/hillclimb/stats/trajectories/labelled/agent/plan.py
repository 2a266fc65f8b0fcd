"""The calls of a perfect agent, which a script follows, interrupts or leaves."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.experts import expert
from tests.hillclimb.stats.trajectories.labelled.agent.step import Step


async def expert_calls(task: Task) -> Sequence[ToolCall]:
    """Return the calls of the expert in an episode of its own."""
    env = MinifleetEnv(APPS[task.env_key], task)
    await env.reset()
    run, calls = expert(task), []
    call: ToolCall | None = next(run)
    while call is not None:
        calls.append(call)
        answer = await env.call(call.name, call.arguments)
        try:
            call = run.send(answer)
        except StopIteration:
            call = None
    return calls


class Plan:
    """The expert's calls, the next one, and how many are left."""

    def __init__(self, task: Task, calls: Sequence[ToolCall]) -> None:
        self._run = expert(task)
        self.calls = tuple(calls)
        self.left = len(calls)
        self.next_call: Step | None = Step.of(next(self._run))

    def accept(self, answer: ToolResult) -> None:
        """Go on with the answer to the next call."""
        assert not answer.is_error, answer.text
        self.left -= 1
        try:
            self.next_call = Step.of(self._run.send(answer))
        except StopIteration:
            self.next_call = None
