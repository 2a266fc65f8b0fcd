"""Says at the start of a run what its agents read: `prompts.rendered`, and prompts in full.

A run goes on without it: an environment whose tools cannot be had now is left out with a warning.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from trainer.contract.events import PhaseStarted, PromptsRendered, RunWarning
from trainer.contract.prompts import PromptText
from trainer.contract.rundir import AttemptDir, prompts_file, run_key, run_tag
from trainer.contract.spec import RunSpec
from trainer.envs.base import Closes, EnvProvider, KnowsTools, Queues, ToolSpec, WordsTask
from trainer.envs.choose import choose_provider
from trainer.envs.deadline import within
from trainer.errors import EnvAtCapacity
from trainer.rollouts.chat import load_chat
from trainer.rollouts.limits import limits_for
from trainer.rollouts.prompts import PROMPT_VERSION
from trainer.rollouts.survey import Counting, Survey, survey
from trainer.sinks.journal import Journal
from trainer.stores.base import BlobStore, StoreError
from trainer.types import Task

SIGN_OF_LIFE_S = 20.0
"""Between two signs of life while prompts are counted (seconds)."""
COUNTED = 64
"""Tasks of an environment whose tokens are counted at the start of a run."""
WORDED = 16
"""Tasks without a prompt for which each environment is asked at the most, besides those shown."""
CLOSE_S = 10.0
PLACE_S = 300.0
"""How long an environment is waited for in all where as many run as may (seconds)."""
PAUSE_S = 1.0
"""After a refusal for want of a place, before the next try (seconds)."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Which prompts are counted and kept in full."""

    num_counted: int | None = COUNTED
    """Per environment; None: all."""
    per_env: int = 0
    """The first tasks of each environment by key; 0: the longest of those counted."""
    task_keys: frozenset[str] = frozenset()
    """These tasks, besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptReport:
    """Finds out and tells what the agents of a run read before their first turn."""

    spec: RunSpec
    tasks: Sequence[Task]
    model_dir: Path
    vocab_size: int | None
    """Embeddings of the model; None leaves open whether the tokenizer belongs to it."""
    provider: EnvProvider | None
    journal: Journal
    store: BlobStore
    attempt_dir: AttemptDir
    shown: Shown = Shown()

    async def tell(self, step: int) -> tuple[PromptText, ...]:
        """Emit `prompts.rendered` and return the prompts kept in full.

        Raises:
            SpecError: the tokenizer cannot chat, or the provider cannot be made.
            ModelUnavailable: there is no tokenizer.
        """
        known = await self._ask_all(step)
        found = await self._count_all(known, step)
        texts = tuple(text for each in found.values() for text in each.texts)
        key = prompts_file(self.attempt_dir.attempt)
        try:
            await asyncio.to_thread(
                self.store.put, run_key(self.attempt_dir.run_dir.name, key), _packed(texts)
            )
        except StoreError as error:
            _log.warning("the prompts are not in the store: %s", error)
        self.journal.emit(
            PromptsRendered,
            step=step,
            version=PROMPT_VERSION,
            max_input_length=self.spec.rollout.max_input_length,
            environments={env_key: each.prompts for env_key, each in found.items()},
            file=key,
        )
        return texts

    async def _ask_all(self, step: int) -> dict[str, _Known]:
        by_env = _by_env(self.tasks)
        tag = run_tag(self.attempt_dir.run_dir.name, self.attempt_dir.attempt, "prompts")
        provider = self.provider or choose_provider(self.spec, tag)
        if not isinstance(provider, KnowsTools):
            self._say_that_it_asks(step)
        asking = asyncio.gather(*(self._ask(provider, own, step) for own in by_env.values()))
        try:
            while not asking.done():
                await asyncio.wait((asking,), timeout=SIGN_OF_LIFE_S)
                if not asking.done():
                    self._say_that_it_asks(step)
            answers = asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            if self.provider is None and isinstance(provider, Closes):
                await _close(provider)
        return {key: known for key, known in zip(by_env, answers, strict=True) if known.tools}

    def _say_that_it_asks(self, step: int) -> None:
        """Give a sign of life while environments start; how many tasks they word is not known."""
        self.journal.emit(PhaseStarted, step=step, phase="prompts")

    async def _ask(self, provider: EnvProvider, tasks: Sequence[Task], step: int) -> _Known:
        env_key = tasks[0].env_key
        if isinstance(provider, KnowsTools):
            return _Known(tools=provider.tools_of(env_key), tasks=tasks)
        limit_s = limits_for(env_key, self.spec.environment, self.spec.rollout).reset_timeout_s
        asked = _Asked(provider, limit_s)
        try:
            if tasks[0].prompt:
                tools, _ = await asked.reset(tasks[0])
                return _Known(tools=tools, tasks=tasks)
            worded = [await asked.reset(task) for task in self._sample(tasks)]
            return _Known(tools=worded[0][0], tasks=[task for _, task in worded])
        except Exception as error:  # noqa: BLE001 - the rollout edge: a run goes on without it
            message = f"{env_key} did not start, so its prompts are not known yet: "
            message += str(error) or f"its reset took more than {limit_s:g} s"
            self.journal.emit(RunWarning, step=step, code="prompts_unknown", message=message)
            return _Known(tools=(), tasks=())

    def _sample(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks to be shown and some more, spread evenly."""
        spread = tasks[:: -(-len(tasks) // WORDED)]
        keys = {task.key for task in spread} | self._shown(tasks)
        return [task for task in tasks if task.key in keys]

    def _shown(self, tasks: Sequence[Task]) -> set[str]:
        first = {task.key for task in tasks[: self.shown.per_env]}
        return first | {task.key for task in tasks if task.key in self.shown.task_keys}

    async def _count_all(self, known: dict[str, _Known], step: int) -> dict[str, Survey]:
        """Count in a thread; say every so often how many tasks are left."""
        tally = _Tally()
        counting = asyncio.create_task(asyncio.to_thread(self._survey, known, tally))
        most = self.shown.num_counted
        total = sum(
            len(each.tasks) if most is None else min(most, len(each.tasks))
            for each in known.values()
        )
        try:
            while not counting.done():
                await asyncio.wait((counting,), timeout=SIGN_OF_LIFE_S)
                if not counting.done():
                    left = total - tally.num_counted
                    self.journal.emit(PhaseStarted, step=step, phase="prompts", num_rollouts=left)
            return counting.result()
        finally:
            tally.is_over = True
            await asyncio.gather(counting, return_exceptions=True)

    def _survey(self, known: dict[str, _Known], tally: _Tally) -> dict[str, Survey]:
        chat = load_chat(self.model_dir, self.vocab_size)
        counting = Counting(number=self.shown.num_counted, on_counted=tally.count)
        return {
            env_key: survey(
                each.tasks,
                each.tools,
                chat,
                limit=self.spec.rollout.max_input_length,
                counting=counting,
                shown=self._shown(each.tasks),
            )
            for env_key, each in known.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What an environment offers, and those of its tasks whose words are known."""

    tools: tuple[ToolSpec, ...]
    tasks: Sequence[Task]


@dataclass(slots=True)
class _Tally:
    """How far a thread has counted, and whether it is to go on."""

    num_counted: int = 0
    is_over: bool = False

    def count(self) -> None:
        """Note one more.

        Raises:
            CountingOver: nobody waits for the rest.
        """
        if self.is_over:
            raise CountingOver
        self.num_counted += 1


class CountingOver(Exception):
    """Whoever asked for the numbers is gone."""


@dataclass(slots=True)
class _Asked:
    """Resets episodes of one environment one after the other, each in a place of its own."""

    provider: EnvProvider
    limit_s: float
    """Longest reset (seconds), without the wait for a place."""
    waited_s: float = 0.0
    """What waiting for places has taken so far (seconds)."""

    async def reset(self, task: Task) -> tuple[tuple[ToolSpec, ...], Task]:
        """Return the tools, and the task in the environment's words where it has none of its own.

        Raises:
            EnvAtCapacity: no place was free in `PLACE_S`.
            Exception: whatever the environment raises; TimeoutError where its reset takes too long.
        """
        while True:
            try:
                async with AsyncExitStack() as held:
                    await self._wait_for_place(task, held)
                    return await self._reset(task)
            except EnvAtCapacity:
                if self.waited_s >= PLACE_S:
                    raise
            await asyncio.sleep(PAUSE_S)
            self.waited_s += PAUSE_S

    async def _wait_for_place(self, task: Task, held: AsyncExitStack) -> None:
        if not isinstance(self.provider, Queues):
            return
        began = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, PLACE_S - self.waited_s)):
                await held.enter_async_context(self.provider.slot(task))
        except TimeoutError:
            raise EnvAtCapacity(f"no place was free for it within {PLACE_S:g} s") from None
        finally:
            self.waited_s += time.monotonic() - began

    async def _reset(self, task: Task) -> tuple[tuple[ToolSpec, ...], Task]:
        env = self.provider.make(task)
        try:
            async with asyncio.timeout(self.limit_s):
                with within(self.limit_s):
                    tools = await env.reset()
            words = env.prompt if isinstance(env, WordsTask) else ""
            return tools, task if task.prompt else replace(task, prompt=words)
        finally:
            await _close(env)


async def _close(opened: Closes) -> None:
    try:
        async with asyncio.timeout(CLOSE_S):
            await opened.close()
    except Exception:  # noqa: BLE001 - what is left is swept by name afterwards
        _log.exception("closing what was asked for its tools")


def _by_env(tasks: Sequence[Task]) -> dict[str, list[Task]]:
    in_order = sorted(tasks, key=lambda task: (task.env_key, task.key))
    return {key: list(own) for key, own in groupby(in_order, key=lambda task: task.env_key)}


def _packed(texts: Sequence[PromptText]) -> bytes:
    lines = "".join(f"{text.model_dump_json()}\n" for text in texts)
    return gzip.compress(lines.encode(), mtime=0)
