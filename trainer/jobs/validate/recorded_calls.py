"""The calls that are known to solve a task: as its dataset row has them, or our apps' experts."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from pydantic import JsonValue

from trainer.envs.base import ToolCall, ToolResult
from trainer.envs.minifleet.catalog import find_task
from trainer.envs.minifleet.experts import expert
from trainer.errors import DataError
from trainer.types import Task

Script = Generator[ToolCall, ToolResult, None]
"""Yields one call after the other, and is sent each one's answer."""


def recorded_calls(task: Task) -> Script | None:
    """Return the calls that solve a task, or None where none are known.

    `metadata.tool_calls` of a dataset's row is a list of `{"name": ..., "arguments": {...}}`. A
    task that minifleet makes has its app's scripted expert.

    Raises:
        DataError: what is recorded is no list of calls.
    """
    metadata = task.payload.get("metadata")
    recorded = metadata.get("tool_calls") if isinstance(metadata, dict) else None
    if recorded is not None:
        return _replay(_calls(task.key, recorded))
    ours = task if "goal" in task.payload else find_task(task.key)
    if ours is not None and ours.env_key == task.env_key:
        return expert(ours)
    return None


def _replay(calls: list[ToolCall]) -> Script:
    for call in calls:  # noqa: UP028 - a list cannot be sent the answers
        yield call


def _calls(key: str, recorded: JsonValue) -> list[ToolCall]:
    calls: list[ToolCall] = []
    for number, each in enumerate(recorded if isinstance(recorded, list) else [recorded]):
        name = each.get("name") if isinstance(each, Mapping) else None
        arguments = each.get("arguments", {}) if isinstance(each, Mapping) else None
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise DataError(
                f"task {key}: metadata.tool_calls[{number}] is no call: it needs a name and an"
                " object of arguments"
            )
        calls.append(ToolCall(name=name, arguments=arguments))
    return calls
