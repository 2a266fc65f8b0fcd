"""Environments outside of rollouts: every operation within its deadline, faults told apart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import JsonValue

from trainer.contract.sections import EnvironmentSpec, RolloutSpec
from trainer.envs.base import Env, EnvProvider, Queues, ToolResult, ToolSpec, WordsTask
from trainer.envs.deadline import within
from trainer.errors import (
    EnvAtCapacity,
    EnvUnavailable,
    RolloutError,
    ToolTransport,
    TrainerError,
    VerifierUnavailable,
)
from trainer.rollouts.limits import Limits, limits_for
from trainer.types import Task
from trainer.validation.errors import NotAnswered

CLOSE_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Opened:
    """A fresh episode, reset."""

    task: Task
    """With the words of its environment, where it came without."""
    tools: tuple[ToolSpec, ...]
    env: Env
    limits: Limits

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Make one tool call; raises ToolTransport as the environment does, and when it is late."""
        return await _within(
            lambda: self.env.call(name, arguments),
            self.limits.call_timeout_s,
            ToolTransport(f"{name} did not answer in time"),
        )

    async def score(self) -> float:
        """Return the grade of the state; raises VerifierUnavailable where there is none."""
        late = VerifierUnavailable("the verifier took too long")
        grade = await _within(self.env.score, self.limits.verifier_timeout_s, late)
        if grade.score is None:
            raise VerifierUnavailable(grade.reason or "the verifier gave no score")
        return grade.score


@dataclass(slots=True, kw_only=True)
class Opener:
    """Opens episodes, and repeats what an infra error ended."""

    provider: EnvProvider
    environment: EnvironmentSpec
    rollout: RolloutSpec
    episode_s: float
    """Longest episode (seconds), without the wait for a free place."""
    num_ended: int = 0
    """Episodes that came to an end, whatever it was; full environments let none begin."""

    async def repeated(self, task: Task, work: Callable[[Opened], Awaitable[_T]]) -> _T:
        """Return what `work` makes of a fresh episode, tried again after infra errors.

        Raises:
            NotAnswered: it failed in every try, or took longer than `episode_s`.
            TrainerError: the run cannot go on.
        """
        tries = 0
        while True:
            try:
                return await self._once(task, work)
            except (TrainerError, NotAnswered):
                raise
            except EnvAtCapacity:
                continue
            except RolloutError as error:
                problem = f"{error.code}: {error}"
            except Exception as error:  # noqa: BLE001 - the rollout edge: faults become data here
                _log.exception("task %s", task.key)
                problem = f"unexpected_{type(error).__name__}"
            tries += 1
            if tries > self.environment.max_infra_retries:
                raise NotAnswered(problem)

    async def _once(self, task: Task, work: Callable[[Opened], Awaitable[_T]]) -> _T:
        ended = 1
        try:
            async with self._open(task) as opened:
                return await work(opened)
        except EnvAtCapacity:
            ended = 0
            raise
        finally:
            self.num_ended += ended

    @asynccontextmanager
    async def _open(self, task: Task) -> AsyncIterator[Opened]:
        limits = limits_for(task.env_key, self.environment, self.rollout)
        async with AsyncExitStack() as held:
            if isinstance(self.provider, Queues):
                await held.enter_async_context(self.provider.slot(task))
            env = self.provider.make(task)
            held.push_async_callback(_close, env, task.key)
            try:
                async with asyncio.timeout(self.episode_s) as deadline:
                    yield await _reset(task, env, limits)
            except TimeoutError:
                if not deadline.expired():
                    raise
                raise NotAnswered(f"an episode took longer than {self.episode_s:g} s") from None


async def _reset(task: Task, env: Env, limits: Limits) -> Opened:
    late = EnvUnavailable("the reset took too long")
    tools = await _within(env.reset, limits.reset_timeout_s, late)
    if not tools:
        raise EnvUnavailable(f"{task.env_key} offers no tools")
    if not task.prompt and isinstance(env, WordsTask):
        task = replace(task, prompt=env.prompt)
    return Opened(task, tools, env, limits)


async def _within(work: Callable[[], Awaitable[_T]], seconds: float, late: RolloutError) -> _T:
    try:
        async with asyncio.timeout(seconds):
            with within(seconds):
                return await work()
    except TimeoutError:
        raise late from None


async def _close(env: Env, task_key: str) -> None:
    """Close an environment whatever happens to it, within a time limit."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await env.close()
    except Exception:  # noqa: BLE001 - the rollout edge: what was found stands already
        _log.exception("closing the environment of %s", task_key)
