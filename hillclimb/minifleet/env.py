"""One episode of one miniature app, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec
from hillclimb.environment.errors import EnvUnavailable
from hillclimb.environment.task import Task
from hillclimb.minifleet.faults import FaultInjector
from hillclimb.minifleet.framework.app import App
from hillclimb.minifleet.framework.changes import Change, difference, explain_mismatch
from hillclimb.minifleet.framework.schema import argument_error
from hillclimb.minifleet.framework.world import (
    Fields,
    Row,
    RuleBroken,
    Table,
    World,
    copy_tables,
    quoted,
)


class MinifleetEnv:
    """An `Env` over one app's tables; the score is 1.0 for exactly the expected changes, else 0.0.

    A repeated `reset` starts over. Calls and scores before `reset` or after `close` raise
    `EnvUnavailable`.
    """

    def __init__(self, app: App, task: Task, injector: FaultInjector | None = None) -> None:
        self._app = app
        self._task = task
        self._injector = injector
        self._tools = {tool.spec.name: tool for tool in app.tools}
        self._world: World | None = None

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Build the start state and return the app's tools."""
        if self._injector:
            await self._injector.before_reset()
        variables, payload = self._task.env_variables, self._task.payload
        self._world = World(
            user=variables["LOGGED_IN_USER"],
            today=variables["CURRENT_DATE"],
            fresh=cast("int", payload["fresh"]),
            tables=copy_tables(self._seed_tables()),
        )
        return self.tools

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """The app's tools in the order shown."""
        return tuple(tool.spec for tool in self._app.tools)

    def is_read_only(self, name: str) -> bool:
        """Tell whether the tool of this name changes nothing."""
        return self._tools[name].is_read_only

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Run one tool; mistakes of the agent come back as a short error text."""
        if self._injector:
            await self._injector.before_call()
        world = self._started()
        tool = self._tools.get(name)
        if tool is None:
            return _error(f"no tool {quoted(name)}, use one of {', '.join(self._tools)}")
        problem = argument_error(arguments, tool.spec.parameters)
        if problem:
            return _error(problem)
        try:
            return ToolResult(text=tool.run(world, Fields(arguments)))
        except RuleBroken as refusal:
            return _error(str(refusal))

    async def score(self) -> Grade:
        """Compare the state with the seed; the reason names a missing or unexpected change."""
        if self._injector:
            await self._injector.before_score()
        expected = cast("list[Change]", self._task.payload["changes"])
        reason = explain_mismatch(expected, difference(*self.tables()))
        return Grade(score=0.0 if reason else 1.0, reason=reason)

    def tables(self) -> tuple[dict[str, Table], dict[str, Table]]:
        """Return the start state, a copy, and the state reached so far.

        Raises:
            EnvUnavailable: not between `reset` and `close`.
        """
        return copy_tables(self._seed_tables()), self._started().tables

    async def close(self) -> None:
        """Discard the state."""
        self._world = None

    def _seed_tables(self) -> dict[str, list[Row]]:
        return cast("dict[str, list[Row]]", self._task.payload["tables"])

    def _started(self) -> World:
        if self._world is None:
            raise EnvUnavailable("the episode is not running")
        return self._world


def _error(text: str) -> ToolResult:
    return ToolResult(text=text, is_error=True)
