"""Episodes of scripted agents, recorded as the trainer stores them."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.environment.base import Grade, ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.replay import RecordedCall, RecordedEpisode
from tests.hillclimb.minifleet.playing import Rewrite, as_it_is, play


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A played episode with its grade."""

    task: Task
    calls: tuple[tuple[ToolCall, ToolResult], ...]
    grade: Grade

    @property
    def episode(self) -> RecordedEpisode:
        return RecordedEpisode(
            task_key=self.task.key,
            prompt=self.task.prompt,
            env_variables=self.task.env_variables,
            calls=[
                RecordedCall(
                    name=call.name,
                    arguments=call.arguments,
                    answer=result.text,
                    is_error=result.is_error,
                )
                for call, result in self.calls
            ],
        )


async def record(task: Task, rewrite: Rewrite = as_it_is) -> Recording:
    """Play the expert's calls as rewritten, and keep every call with its answer."""
    calls: list[ToolCall] = []

    def noting(call: ToolCall) -> list[ToolCall]:
        rewritten = list(rewrite(call))
        calls.extend(rewritten)
        return rewritten

    grade, results = await play(task, noting)
    return Recording(task=task, calls=tuple(zip(calls, results, strict=True)), grade=grade)
