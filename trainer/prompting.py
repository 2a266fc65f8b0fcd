"""Says at the start of a run what its agents read: `prompts.rendered`, and prompts in full.

A run goes on without it: an environment whose tools cannot be had now is left out with a warning.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from trainer.contract.events import PromptsRendered, RunWarning
from trainer.contract.prompts import PromptText
from trainer.contract.rundir import AttemptDir, prompts_file, run_key
from trainer.contract.spec import RunSpec
from trainer.envs.base import Closes, EnvProvider, KnowsTools, ToolSpec
from trainer.envs.choose import choose_provider
from trainer.rollouts.chat import load_chat
from trainer.rollouts.limits import limits_for
from trainer.rollouts.prompts import PROMPT_VERSION
from trainer.rollouts.survey import Survey, survey
from trainer.sinks.journal import Journal
from trainer.stores.base import BlobStore, StoreError
from trainer.types import Task

COUNTED = 64
"""Tasks of an environment whose tokens are counted at the start of a run."""
CLOSE_S = 10.0
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
        by_env = _by_env(self.tasks)
        tools = await self._tools(by_env, step)
        found = await asyncio.to_thread(self._survey, by_env, tools)
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

    async def _tools(
        self, by_env: dict[str, list[Task]], step: int
    ) -> dict[str, tuple[ToolSpec, ...]]:
        tag = f"{self.attempt_dir.run_dir.name}-{self.attempt_dir.attempt}-prompts"
        provider = self.provider or choose_provider(self.spec, tag)
        asked = [self._tools_of(provider, tasks[0], step) for tasks in by_env.values()]
        try:
            answers = await asyncio.gather(*asked)
        finally:
            if self.provider is None and isinstance(provider, Closes):
                await _close(provider)
        return {key: tools for key, tools in zip(by_env, answers, strict=True) if tools}

    async def _tools_of(self, provider: EnvProvider, task: Task, step: int) -> tuple[ToolSpec, ...]:
        if isinstance(provider, KnowsTools):
            return provider.tools_of(task.env_key)
        limits = limits_for(task.env_key, self.spec.environment, self.spec.rollout)
        env = provider.make(task)
        try:
            async with asyncio.timeout(limits.reset_timeout_s):
                return await env.reset()
        except Exception as error:  # noqa: BLE001 - the rollout edge: a run goes on without it
            message = f"{task.env_key} did not start, so its prompts are not known yet: "
            message += str(error) or f"its reset took more than {limits.reset_timeout_s:g} s"
            self.journal.emit(RunWarning, step=step, code="prompts_unknown", message=message)
            return ()
        finally:
            await _close(env)

    def _survey(
        self, by_env: dict[str, list[Task]], tools: dict[str, tuple[ToolSpec, ...]]
    ) -> dict[str, Survey]:
        chat, shown = load_chat(self.model_dir, self.vocab_size), self.shown
        return {
            env_key: survey(
                by_env[env_key],
                tools[env_key],
                chat,
                limit=self.spec.rollout.max_input_length,
                num_counted=shown.num_counted,
                shown=[task.key for task in by_env[env_key][: shown.per_env]]
                + [task.key for task in by_env[env_key] if task.key in shown.task_keys],
            )
            for env_key in tools
        }


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
