"""A miniature app behind another platform's dialect, with answers of a script where it has some."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.environment.base import Env, Grade, ToolResult, ToolSpec
from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer
from tests.hillclimb.stats.trajectories.labelled.envs.dialect import Dialect


class Platform:
    """An `Env` around another one.

    Args:
        env: the real one.
        dialect: how arguments and answers are written.
        grades: False: the verifier returns no grade.
    """

    def __init__(self, env: Env, dialect: Dialect, *, grades: bool = True) -> None:
        self._env = env
        self._dialect = dialect
        self._grades = grades
        self._scripted: ScriptedAnswer | None = None
        self.native: ToolResult | None = None
        """The app's own answer to the last call; None if it was not asked."""

    def answer_next(self, answer: ScriptedAnswer) -> None:
        """Answer the next call so."""
        self._scripted = answer

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Start the app; return its tools with the platform's names of arguments."""
        return tuple(self._dialect.describe(tool) for tool in await self._env.reset())

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Pass a call on to the app, unless the script answers it."""
        scripted, self._scripted, self.native = self._scripted, None, None
        if scripted is None or scripted.acts:
            self.native = await self._env.call(name, self._dialect.read(arguments))
        if scripted is None:
            assert self.native is not None
            return self._dialect.result(self.native)
        return ToolResult(
            text=scripted.text or "",
            is_error=scripted.is_error,
            ends_episode=scripted.ends_episode,
        )

    async def score(self) -> Grade:
        """Return the app's own grade."""
        if not self._grades:
            return Grade(score=None, reason="verifier_none")
        return await self._env.score()

    async def close(self) -> None:
        """End the app's episode."""
        await self._env.close()
