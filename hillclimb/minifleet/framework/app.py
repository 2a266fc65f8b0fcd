"""The parts of a miniature app: tools, task templates and a scripted expert."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, replace

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.framework.schema import parameters
from hillclimb.minifleet.framework.template import Template
from hillclimb.minifleet.framework.world import Fields, Scalar, World

Handler = Callable[[World, Fields], str]
"""Executes a tool on validated arguments and returns the observation.

Raises `RuleBroken` for a call that the app refuses."""

ExpertRun = Generator[ToolCall, ToolResult, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool: its specification and its handler."""

    spec: ToolSpec
    run: Handler
    is_read_only: bool = False
    """True where the tool changes no state, so a call may be repeated."""


def tool(
    name: str,
    description: str,
    run: Handler,
    required: Mapping[str, JsonValue],
    **optional: JsonValue,
) -> Tool:
    """Return a tool from its handler and its argument schemas (see `schema.text`, `integer`)."""
    schema = parameters(required, **optional)
    return Tool(spec=ToolSpec(name=name, description=description, parameters=schema), run=run)


def read_only_tool(
    name: str,
    description: str,
    run: Handler,
    required: Mapping[str, JsonValue],
    **optional: JsonValue,
) -> Tool:
    """Return a tool as `tool` does, for a handler that changes nothing."""
    return replace(tool(name, description, run, required, **optional), is_read_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """One miniature app: its tools in the order shown, its task templates, its scripted expert."""

    key: str
    tools: tuple[Tool, ...]
    templates: tuple[Template, ...]
    expert: Callable[[Task], ExpertRun]


MAX_ROWS = 3
"""Most rows of a search result: observations stay short."""


def lines(rows: Iterable[Mapping[str, Scalar]], *, empty: str = "no match") -> str:
    """Return rows as JSON lines, at most `MAX_ROWS` of them; `empty` when there is none."""
    texts = [line(**row) for row in rows][:MAX_ROWS]
    return "\n".join(texts) or empty


def line(**row: Scalar) -> str:
    """Return one row as compact JSON."""
    return json.dumps(row, separators=(",", ":"))


def goal_of(task: Task) -> Fields:
    """Return a task's request as data, for experts."""
    goal = task.payload["goal"]
    if not isinstance(goal, dict):
        raise TypeError("goal is not an object")
    return Fields(goal)


def call(name: str, /, **arguments: Scalar) -> ToolCall:
    """Return a tool call."""
    return ToolCall(name=name, arguments=arguments)


def first_row(result: ToolResult) -> Fields:
    """Return the first JSON line of an observation, as an expert reads it."""
    return all_rows(result)[0]


def all_rows(result: ToolResult) -> list[Fields]:
    """Return every JSON line of an observation, as an expert reads it."""
    return [Fields(json.loads(row)) for row in result.text.splitlines()]
