"""Episodes outside of rollouts: deadlines for every operation, retries after infra errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from pydantic import JsonValue

from hillclimb.environment.base import (
    Env,
    EnvProvider,
    LimitsConcurrency,
    ToolResult,
    ToolSpec,
)
from hillclimb.environment.deadline import within
from hillclimb.environment.errors import (
    EnvAtCapacity,
    EnvUnavailable,
    RolloutError,
    ToolTransport,
    VerifierUnavailable,
)
from hillclimb.environment.prompt import with_prompt_of
from hillclimb.environment.task import Task
from hillclimb.process.redactor import NOTHING_SECRET, Redactor
from hillclimb.spec.environment.environment import EnvironmentSpec
from hillclimb.spec.training.rollout import RolloutSpec
from trainer.errors import TrainerError
from trainer.jobs.validate.errors import NotAnswered
from trainer.rollouts.limits.limits import RolloutLimits, limits_for
from trainer.rollouts.records.cause import cause_in_words

CLOSE_TIMEOUT_S = 10.0
_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class OpenEpisode:
    """A fresh episode after its reset."""

    task: Task
    """With the prompt of the environment's reset after its own."""
    tools: tuple[ToolSpec, ...]
    env: Env
    limits: RolloutLimits

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> ToolResult:
        """Make one tool call; raises ToolTransport as the environment does, and on a timeout."""
        return await _within(
            lambda: self.env.call(name, arguments),
            self.limits.call_timeout_s,
            ToolTransport(f"{name} did not answer in time"),
        )

    async def score(self) -> float:
        """Return the score of the state; raises VerifierUnavailable if there is none."""
        timeout = VerifierUnavailable("the verifier took too long")
        grade = await _within(self.env.score, self.limits.verifier_timeout_s, timeout)
        if grade.score is None:
            causes = filter(None, (grade.reason, grade.detail))
            raise VerifierUnavailable(": ".join(causes) or "the verifier returned no score")
        return grade.score


@dataclass(slots=True, kw_only=True)
class EpisodeRunner:
    """Runs work in fresh episodes, with retries after infra errors."""

    provider: EnvProvider
    environment: EnvironmentSpec
    rollout: RolloutSpec
    episode_s: float
    """Longest episode (seconds), without the wait for a free slot."""
    redactor: Redactor = NOTHING_SECRET
    num_ended: int = 0
    """Episodes ended, with or without an error; refusals at capacity do not count."""

    async def run(self, task: Task, work: Callable[[OpenEpisode], Awaitable[_T]]) -> _T:
        """Return the result of `work` in a fresh episode, retried after infra errors.

        Raises:
            NotAnswered: every try failed, or one took longer than `episode_s`.
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
                code, cause, is_permanent = error.code, str(error), error.is_permanent
            except Exception as error:  # noqa: BLE001 - the rollout edge: faults become data here
                _log.exception("task %s", task.key)
                code, cause, is_permanent = f"unexpected_{type(error).__name__}", str(error), False
            tries += 1
            if is_permanent or tries > self.environment.max_infra_retries:
                detail = cause_in_words(cause, self.redactor)
                raise NotAnswered(f"{code}: {detail}" if detail else code)

    async def _once(self, task: Task, work: Callable[[OpenEpisode], Awaitable[_T]]) -> _T:
        ended = 1
        try:
            async with self._open(task) as episode:
                return await work(episode)
        except EnvAtCapacity:
            ended = 0
            raise
        finally:
            self.num_ended += ended

    @asynccontextmanager
    async def _open(self, task: Task) -> AsyncIterator[OpenEpisode]:
        limits = limits_for(task.env_key, self.environment, self.rollout)
        async with AsyncExitStack() as stack:
            if isinstance(self.provider, LimitsConcurrency):
                await stack.enter_async_context(self.provider.slot(task))
            env = self.provider.make(task)
            stack.push_async_callback(_close, env, task.key)
            try:
                async with asyncio.timeout(self.episode_s) as deadline:
                    yield await _reset(task, env, limits)
            except TimeoutError:
                if not deadline.expired():
                    raise
                raise NotAnswered(f"an episode took longer than {self.episode_s:g} s") from None


async def _reset(task: Task, env: Env, limits: RolloutLimits) -> OpenEpisode:
    timeout = EnvUnavailable("the reset took too long")
    tools = await _within(env.reset, limits.reset_timeout_s, timeout)
    if not tools:
        raise EnvUnavailable(f"{task.env_key} offers no tools")
    return OpenEpisode(with_prompt_of(env, task), tools, env, limits)


async def _within(work: Callable[[], Awaitable[_T]], seconds: float, timeout: RolloutError) -> _T:
    try:
        async with asyncio.timeout(seconds):
            with within(seconds):
                return await work()
    except TimeoutError:
        raise timeout from None


async def _close(env: Env, task_key: str) -> None:
    """Close an environment within a time limit; errors are only logged."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await env.close()
    except Exception:  # noqa: BLE001 - the rollout edge: the result is known already
        _log.exception("closing the environment of %s", task_key)
