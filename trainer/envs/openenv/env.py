"""One episode in an OpenEnv server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from pydantic import JsonValue

from hillclimb.environment.base import Grade, ToolResult, ToolSpec, shortened
from hillclimb.environment.errors import (
    EnvUnavailable,
    RolloutError,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.environment.sanitize import sanitize_unicode
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.spec.environment.openenv import OpenEnvServer
from trainer.envs.openenv.actions import LIST_TOOLS, Actions, complaint
from trainer.envs.openenv.rewards import RewardScale
from trainer.envs.openenv.session import FAULTS, OpenEnvSession, SessionRefused

_FULL = "CAPACITY_REACHED"
_INVALID = "VALIDATION_ERROR"
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.05, 1.0
_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


class OpenEnvEpisode:
    """An `Env` over one session of a server; its `prompt` is the observation of the reset.

    Args:
        server: settings of the spec.
        headers: of the connection.
        actions: loads the server's actions when the episode starts.
        arguments: of the server's reset.
        scale: grades the server's episodes.
        allowed: what connections may reach beside public addresses.
    """

    def __init__(
        self,
        server: OpenEnvServer,
        headers: Mapping[str, str],
        actions: Callable[[], Awaitable[Actions]],
        arguments: Mapping[str, JsonValue],
        scale: RewardScale,
        allowed: AllowedHosts,
    ) -> None:
        self._server = server
        self._headers = headers
        self._load_actions = actions
        self.arguments = dict(arguments)
        self._session: OpenEnvSession | None = None
        self._actions: Actions | None = None
        self._tools: tuple[ToolSpec, ...] = ()
        self._scale = scale
        self._allowed = allowed
        self._rewards: list[object] = []
        self._is_over = False
        self._prompt = ""

    @property
    def prompt(self) -> str:
        """The text of the reset's observation."""
        return self._prompt

    async def reset(self) -> tuple[ToolSpec, ...]:
        """Open a session, reset the environment in it and return its tools.

        A server without a free session is retried for as long as the caller waits.
        """
        self._actions = actions = await self._load_actions()
        first = await _await_response(self._begin(), EnvUnavailable)
        if first.done:
            raise EnvUnavailable("the episode was over when it began")
        self._prompt = sanitize_unicode(actions.text(first.observation))
        self._record(first)
        listed: dict[str, Any] = {}
        if actions.are_tools:
            answer = await _await_response(self._running().step(LIST_TOOLS), EnvUnavailable)
            listed = answer.observation
        self._tools = actions.tools(listed)
        return self._tools

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Take one step; an invalid action is an error result and changes nothing."""
        names = [tool.name for tool in self._tools]
        if self._actions is None or not names:
            raise ToolTransport("the episode is not running")
        if name not in names:
            return ToolResult(text=f"no tool {name}, use one of {', '.join(names)}", is_error=True)
        try:
            step = self._running().step(self._actions.action(name, arguments))
            answer = await _await_response(step, ToolTransport)
        except ToolTransport as fault:
            refusal = fault.__cause__
            if not isinstance(refusal, SessionRefused) or refusal.code != _INVALID:
                raise
            if not self._actions.caused_by_policy(refusal.errors, arguments):
                raise
            text = complaint(refusal.errors) or refusal.message
            return ToolResult(text=self._shortened(text), is_error=True)
        self._record(answer)
        result = self._actions.result(answer.observation, ends_episode=self._is_over)
        return replace(result, text=self._shortened(result.text))

    async def score(self) -> Grade:
        """Grade the episode by its rewards (`RewardScale`).

        If no step had a reward, the server's state may have one (`reward`). If it has none either,
        an episode that the server ended is ungraded, and one that the model ended early gets 0.0.

        Raises:
            SpecError: the reward lies outside of the spec's range.
        """
        rewards = list(self._rewards)
        if not rewards:
            state = await _await_response(self._running().state(), VerifierUnavailable)
            rewards = [state["reward"]] if state.get("reward") is not None else []
        if not rewards and self._is_over:
            return Grade(score=None, reason="the server ended the episode without a reward")
        if not rewards:
            return Grade(score=0.0, reason="the model stopped before the server gave a reward")
        return self._scale.grade(rewards)

    async def close(self) -> None:
        """End the session on both sides."""
        session, self._session, self._tools = self._session, None, ()
        if session is not None:
            await session.close()

    async def _begin(self) -> Any:  # noqa: ANN401 - openenv-core's StepResult
        wait_s = _FIRST_WAIT_S
        while True:
            session = self._session = OpenEnvSession(self._server, self._headers, self._allowed)
            try:
                return await session.reset(**self.arguments)
            except SessionRefused as refusal:
                if refusal.code != _FULL:
                    raise
                _log.info("%s: %s; retrying", self._server.url, refusal.message)
            await self.close()
            await asyncio.sleep(wait_s)
            wait_s = min(2.0 * wait_s, _LONGEST_WAIT_S)

    def _shortened(self, text: str) -> str:
        return shortened(text, self._server.max_output_chars)

    def _record(self, answer: Any) -> None:  # noqa: ANN401 - openenv-core's StepResult
        if answer.reward is not None:
            self._rewards.append(answer.reward)
        self._is_over = self._is_over or bool(answer.done)

    def _running(self) -> OpenEnvSession:
        if self._session is None:
            raise EnvUnavailable("the episode is not running")
        return self._session


async def _await_response(awaitable: Awaitable[_Answer], kind: type[RolloutError]) -> _Answer:
    """Await a response of the server.

    Raises:
        RolloutError: of `kind`; none came, or the server reports a failure.
    """
    try:
        return await awaitable
    except SessionRefused as refusal:
        raise kind(f"the server refused: {refusal}") from refusal
    except FAULTS as fault:
        raise kind(f"the server did not answer: {str(fault) or type(fault).__name__}") from fault
