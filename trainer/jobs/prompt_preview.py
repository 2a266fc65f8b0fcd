"""Emits `prompts.rendered` at the start of a run and stores some prompts in full.

It never stops a run: an environment that does not list its tools is omitted with a warning.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from hillclimb.blobs.base import StoreError
from hillclimb.environment.base import (
    AsyncCloseable,
    EnvProvider,
    LimitsConcurrency,
    ListsTools,
    ToolSpec,
)
from hillclimb.environment.deadline import within
from hillclimb.environment.errors import EnvAtCapacity
from hillclimb.environment.prompt import with_prompt_of
from hillclimb.environment.task import Task
from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.events import PhaseStarted, PromptsRendered, RunWarning
from hillclimb.protocol.rundir import prompts_file
from trainer.attempt.context import AttemptContext
from trainer.envs.choose import choose_provider
from trainer.rollouts.chat.prompt_stats import CountOptions, PromptStats, compute_prompt_stats
from trainer.rollouts.limits.limits import limits_for
from trainer.rollouts.styles.choose import choose_chat, choose_style

PROGRESS_S = 20.0
"""Interval of progress events (seconds): the service expects events from a live trainer."""
NUM_COUNTED = 64
"""Tasks per environment whose tokens are counted at the start of a run."""
MAX_RESETS = 16
"""Tasks worded by their environment that are reset for it, besides the selected ones."""
CLOSE_S = 10.0
CAPACITY_WAIT_S = 300.0
"""Longest wait in all for a free slot of an environment at capacity (seconds)."""
CAPACITY_PAUSE_S = 1.0
"""Pause after a refusal for lack of capacity (seconds)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewSelection:
    """Selection of the prompts that are counted, and of those stored in full."""

    num_counted: int | None = NUM_COUNTED
    """Per environment; None: all."""
    per_env: int = 0
    """Prompts stored: the first ones of each environment by key; 0: the longest counted one."""
    task_keys: frozenset[str] = frozenset()
    """Additional tasks whose prompts are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPreview:
    """Renders and counts the prompts that agents read before their first turn."""

    context: AttemptContext
    tasks: Sequence[Task]
    model_dir: Path
    vocab_size: int | None
    """Embeddings of the model; None skips the check that the tokenizer fits the model."""
    provider: EnvProvider | None
    selection: PreviewSelection = PreviewSelection()

    async def emit(self, step: int) -> tuple[PromptText, ...]:
        """Emit `prompts.rendered` and return the prompts stored in full.

        Raises:
            SpecError: the tokenizer has no known chat markers, or the provider cannot be made.
            ModelUnavailable: there is no tokenizer.
        """
        context = self.context
        offers = await self._query_environments(step)
        stats = await self._count_all(offers, step)
        texts = tuple(text for env_stats in stats.values() for text in env_stats.texts)
        key = prompts_file(context.dir.attempt)
        try:
            await asyncio.to_thread(context.store.put, context.key(key), _gzip_lines(texts))
        except StoreError as error:
            _log.warning("the prompts are not in the store: %s", error)
        context.journal.emit(
            PromptsRendered(
                step=step,
                version=choose_style(context.spec.prompt).wording.version,
                max_input_length=context.spec.rollout.max_input_length,
                environments={key: env_stats.prompts for key, env_stats in stats.items()},
                file=key,
            )
        )
        return texts

    async def _query_environments(self, step: int) -> dict[str, _EnvOffer]:
        by_env = _by_env(self.tasks)
        provider = self.provider or choose_provider(self.context.spec, self.context.tag("prompts"))
        if not isinstance(provider, ListsTools):
            self._emit_progress(step)
        queries = asyncio.gather(*(self._query(provider, own, step) for own in by_env.values()))
        try:
            while not queries.done():
                await asyncio.wait((queries,), timeout=PROGRESS_S)
                if not queries.done():
                    self._emit_progress(step)
            offers = queries.result()
        finally:
            queries.cancel()
            await asyncio.gather(queries, return_exceptions=True)
            if self.provider is None and isinstance(provider, AsyncCloseable):
                await _close(provider)
        return {key: offer for key, offer in zip(by_env, offers, strict=True) if offer.tools}

    def _emit_progress(self, step: int, num_left: int | None = None) -> None:
        """Emit the phase again; `num_left` is None while environments start."""
        self.context.journal.emit(PhaseStarted(step=step, phase="prompts", num_rollouts=num_left))

    async def _query(self, provider: EnvProvider, tasks: Sequence[Task], step: int) -> _EnvOffer:
        env_key, spec = tasks[0].env_key, self.context.spec
        if isinstance(provider, ListsTools):
            return _EnvOffer(tools=provider.tools_of(env_key), tasks=tasks)
        limit_s = limits_for(env_key, spec.environment, spec.rollout).reset_timeout_s
        resetter = _Resetter(provider, limit_s)
        try:
            sample = self._sample(tasks)
            tools, first = await resetter.reset(sample[0])
            if sample[0].prompt and first.prompt == sample[0].prompt:
                return _EnvOffer(tools=tools, tasks=tasks)
            others = [(await resetter.reset(task))[1] for task in sample[1:]]
            return _EnvOffer(tools=tools, tasks=[first, *others])
        except Exception as error:  # noqa: BLE001 - the rollout edge: a run goes on without it
            message = f"{env_key} did not start, so its prompts are not known yet: "
            message += str(error) or f"its reset took more than {limit_s:g} s"
            self.context.journal.emit(
                RunWarning(step=step, code="prompts_unknown", message=message)
            )
            return _EnvOffer(tools=(), tasks=())

    def _sample(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the selected tasks and up to `MAX_RESETS` more, spread evenly."""
        spread = tasks[:: -(-len(tasks) // MAX_RESETS)]
        keys = {task.key for task in spread} | self._selected_keys(tasks)
        return [task for task in tasks if task.key in keys]

    def _selected_keys(self, tasks: Sequence[Task]) -> set[str]:
        first = {task.key for task in tasks[: self.selection.per_env]}
        return first | {task.key for task in tasks if task.key in self.selection.task_keys}

    async def _count_all(self, offers: dict[str, _EnvOffer], step: int) -> dict[str, PromptStats]:
        """Count tokens in a thread; emit the number of tasks left every `PROGRESS_S`."""
        progress = _Progress()
        counting = asyncio.create_task(asyncio.to_thread(self._count, offers, progress))
        limit = self.selection.num_counted
        total = sum(
            len(offer.tasks) if limit is None else min(limit, len(offer.tasks))
            for offer in offers.values()
        )
        try:
            while not counting.done():
                await asyncio.wait((counting,), timeout=PROGRESS_S)
                if not counting.done():
                    self._emit_progress(step, total - progress.num_counted)
            return counting.result()
        finally:
            progress.is_cancelled = True
            await asyncio.gather(counting, return_exceptions=True)

    def _count(self, offers: dict[str, _EnvOffer], progress: _Progress) -> dict[str, PromptStats]:
        chat = choose_chat(self.context.spec.prompt, self.model_dir, self.vocab_size)
        counting = CountOptions(
            number=self.selection.num_counted,
            on_counted=progress.count,
            wording=choose_style(self.context.spec.prompt).wording,
        )
        return {
            env_key: compute_prompt_stats(
                offer.tasks,
                offer.tools,
                chat,
                limit=self.context.spec.rollout.max_input_length,
                counting=counting,
                text_keys=self._selected_keys(offer.tasks),
            )
            for env_key, offer in offers.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _EnvOffer:
    """The tools of an environment, and those of its tasks whose prompts are known."""

    tools: tuple[ToolSpec, ...]
    tasks: Sequence[Task]


@dataclass(slots=True)
class _Progress:
    """Progress of the counting thread, and a flag to cancel it."""

    num_counted: int = 0
    is_cancelled: bool = False

    def count(self) -> None:
        """Add one counted task.

        Raises:
            CountingCancelled: the result is not needed any more.
        """
        if self.is_cancelled:
            raise CountingCancelled
        self.num_counted += 1


class CountingCancelled(Exception):
    """The caller no longer waits for the token counts."""


@dataclass(slots=True)
class _Resetter:
    """Resets episodes of one environment one after the other, each in a slot of its own."""

    provider: EnvProvider
    limit_s: float
    """Longest reset (seconds), without the wait for a slot."""
    waited_s: float = 0.0
    """Total wait for slots so far (seconds)."""

    async def reset(self, task: Task) -> tuple[tuple[ToolSpec, ...], Task]:
        """Return the tools, and the task with the environment's prompt after its own.

        Raises:
            EnvAtCapacity: no slot was free within `CAPACITY_WAIT_S`.
            Exception: any error of the environment; TimeoutError if its reset takes too long.
        """
        while True:
            try:
                async with AsyncExitStack() as slot:
                    await self._wait_for_slot(task, slot)
                    return await self._reset(task)
            except EnvAtCapacity:
                if self.waited_s >= CAPACITY_WAIT_S:
                    raise
            await asyncio.sleep(CAPACITY_PAUSE_S)
            self.waited_s += CAPACITY_PAUSE_S

    async def _wait_for_slot(self, task: Task, slot: AsyncExitStack) -> None:
        if not isinstance(self.provider, LimitsConcurrency):
            return
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, CAPACITY_WAIT_S - self.waited_s)):
                await slot.enter_async_context(self.provider.slot(task))
        except TimeoutError:
            raise EnvAtCapacity(f"it had no free slot within {CAPACITY_WAIT_S:g} s") from None
        finally:
            self.waited_s += time.monotonic() - began

    async def _reset(self, task: Task) -> tuple[tuple[ToolSpec, ...], Task]:
        env = self.provider.make(task)
        try:
            async with asyncio.timeout(self.limit_s):
                with within(self.limit_s):
                    tools = await env.reset()
            return tools, with_prompt_of(env, task)
        finally:
            await _close(env)


async def _close(resource: AsyncCloseable) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await resource.close()
    except Exception:  # noqa: BLE001 - leftover instances are swept by name afterwards
        _log.exception("closing an environment after reading its prompts")


def _by_env(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    in_order = sorted(tasks, key=lambda task: (task.env_key, task.key))
    return {key: list(own) for key, own in groupby(in_order, key=lambda task: task.env_key)}


def _gzip_lines(texts: Sequence[PromptText]) -> bytes:
    lines = "".join(f"{text.model_dump_json()}\n" for text in texts)
    return gzip.compress(lines.encode(), mtime=0)
