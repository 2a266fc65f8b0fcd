"""Calls known to solve a task: recorded in its dataset row, or made by a minifleet expert."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall, ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import find_task
from hillclimb.minifleet.experts import expert
from trainer.errors import DataError

Script = Generator[ToolCall, ToolResult, None]
"""Yields the calls one by one; each one's result is sent to it."""


def recorded_calls(task: Task) -> Script | None:
    """Return the calls that solve a task, or None if none are known.

    `metadata.tool_calls` of a dataset's row is a list of `{"name": ..., "arguments": {...}}`. A
    task of minifleet has its app's scripted expert.

    Raises:
        DataError: `tool_calls` is not a list of calls.
    """
    metadata = task.payload.get("metadata")
    recorded = metadata.get("tool_calls") if isinstance(metadata, dict) else None
    if recorded is not None:
        return _replay(_calls(task.key, recorded))
    own_task = task if "goal" in task.payload else find_task(task.key)
    if own_task is not None and own_task.env_key == task.env_key:
        return expert(own_task)
    return None


def _replay(calls: list[ToolCall]) -> Script:
    for call in calls:  # noqa: UP028 - a list iterator has no `send`
        yield call


def _calls(key: str, recorded: JsonValue) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for number, call in enumerate(recorded if isinstance(recorded, list) else [recorded]):
        name = call.get("name") if isinstance(call, Mapping) else None
        arguments = call.get("arguments", {}) if isinstance(call, Mapping) else None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise DataError(
                f"task {key}: metadata.tool_calls[{number}] is not a call: it needs a name and an"
                " object of arguments"
            )
        calls.append(ToolCall(name=name, arguments=arguments))
    return calls
