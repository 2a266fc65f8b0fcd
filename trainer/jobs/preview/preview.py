"""A run of kind `preview`: what the model would read, without a model, an engine or a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.announcing import Loaded, announce
from trainer.attempt import Attempt
from trainer.contract.events import PhaseStarted
from trainer.contract.prompts import PromptText
from trainer.contract.rundir import MODEL
from trainer.data.sets import load_tasks
from trainer.envs.base import EnvProvider
from trainer.errors import DataError
from trainer.prompting import PromptReport, Shown
from trainer.sources import WITHOUT_WEIGHTS, resolve_source
from trainer.types import Task


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
            StopRequested: asked to stop; nothing is kept.
            TrainerError: tasks or tokenizer cannot be had, or a task asked for is none of the run.
        """
        attempt, spec = self.attempt, self.attempt.spec
        tasks = load_tasks(spec, attempt.store)
        every = (*tasks.train, *tasks.eval)
        _refuse_strangers(spec.preview.task_keys, every)
        self._announce(len(tasks.train), len(tasks.eval))
        source, place = spec.model.source, attempt.dir.path / MODEL
        report = PromptReport(
            spec=spec,
            tasks=every,
            model_dir=resolve_source(source, place, wanted=WITHOUT_WEIGHTS),
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
        self._told = await attempt.stop.unless(report.tell(0))

    def _announce(self, num_train_tasks: int, num_eval_tasks: int) -> None:
        """Say that the work has begun: of many tasks it takes longer than a start may."""
        announce(
            self.attempt,
            Loaded(
                engine="none",
                num_parameters=0,
                num_train_tasks=num_train_tasks,
                num_eval_tasks=num_eval_tasks,
            ),
        )
        left = num_train_tasks + num_eval_tasks
        self.attempt.journal.emit(PhaseStarted, step=0, phase="prompts", num_rollouts=left)

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
