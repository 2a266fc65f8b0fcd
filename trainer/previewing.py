"""A run of kind `preview`: what the model would read, without a model, an engine or a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.attempt import Attempt
from trainer.contract.prompts import PromptText
from trainer.data.sets import load_tasks
from trainer.envs.base import EnvProvider
from trainer.errors import DataError
from trainer.prompting import PromptReport, Shown
from trainer.sources import resolve_source
from trainer.types import Task

MODEL = "model"
READ_FIRST = ("*.json", "*.jinja")
"""What of a model's files is needed: its tokenizer, not its weights."""


@dataclass(slots=True)
class Preview:
    """Renders the prompts of a run and counts them all."""

    attempt: Attempt
    provider: EnvProvider | None = None
    step: int = 0
    _told: Sequence[PromptText] = ()

    async def train(self) -> None:
        """Emit `prompts.rendered`, with the prompts asked for in the store.

        Raises:
            TrainerError: tasks or tokenizer cannot be had, or a task asked for is none of the run.
        """
        attempt, spec = self.attempt, self.attempt.spec
        tasks = load_tasks(spec, attempt.store)
        every = (*tasks.train, *tasks.eval)
        _refuse_strangers(spec.preview.task_keys, every)
        source, place = spec.model.source, attempt.dir.path / MODEL
        report = PromptReport(
            spec=spec,
            tasks=every,
            model_dir=resolve_source(source, place, wanted=READ_FIRST),
            vocab_size=None,
            provider=self.provider,
            journal=attempt.journal,
            store=attempt.store,
            attempt_dir=attempt.dir,
            shown=Shown(
                num_counted=None,
                per_env=spec.preview.tasks_per_env,
                task_keys=frozenset(spec.preview.task_keys),
            ),
        )
        self._told = await report.tell(0)

    async def close(self) -> None:
        """Nothing is held."""

    def summary(self) -> str:
        """Say what was done."""
        return f"rendered the prompts, {len(self._told)} of them in full"


def build_preview(attempt: Attempt, provider: EnvProvider | None = None) -> Preview:
    """Make what a run of kind `preview` does; `provider` serves instead of the spec's own."""
    return Preview(attempt, provider)


def _refuse_strangers(keys: Sequence[str], tasks: Sequence[Task]) -> None:
    known = {task.key for task in tasks}
    strangers = sorted(set(keys) - known)
    if strangers:
        example = min(known, default="none")
        raise DataError(
            f"preview.task_keys names {strangers[0]!r}, which is no task of this run: one of them"
            f" is {example}"
        )
