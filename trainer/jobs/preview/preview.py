"""A run of kind `preview`: the prompts of its tasks, without a model, an engine or a rollout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.environment.base import EnvProvider
from hillclimb.environment.task import Task
from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.events import PhaseStarted
from trainer.attempt.context import AttemptContext
from trainer.errors import DataError
from trainer.inputs.model.sources import WITHOUT_WEIGHTS
from trainer.inputs.tasks.sets import load_tasks
from trainer.jobs.prompt_preview import PreviewSelection, PromptPreview
from trainer.jobs.startup_event import StartupInfo, emit_started
from trainer.jobs.train.starting_policy import fetch_model


@dataclass(slots=True)
class Preview:
    """Renders the prompts of a run and counts their tokens."""

    context: AttemptContext
    provider: EnvProvider | None = None
    step: int = 0
    _texts: Sequence[PromptText] = ()

    async def train(self) -> None:
        """Emit `prompts.rendered` and store the prompts selected in the spec.

        Raises:
            StopRequested: stopped on request; nothing is stored.
            TrainerError: tasks or tokenizer cannot be loaded, or a selected task is not in the run.
        """
        context, spec = self.context, self.context.spec
        with context.startup.phase("tasks"):
            sets = load_tasks(spec, context.store)
        tasks = (*sets.train, *sets.eval)
        _check_keys(spec.preview.task_keys, tasks)
        self._emit_started(len(sets.train), len(sets.eval))
        preview = PromptPreview(
            context=context,
            tasks=tasks,
            model_dir=fetch_model(context, patterns=WITHOUT_WEIGHTS),
            vocab_size=None,
            provider=self.provider,
            selection=PreviewSelection(
                num_counted=None,
                per_env=spec.preview.tasks_per_env,
                task_keys=frozenset(spec.preview.task_keys),
            ),
        )
        self._texts = await context.stop.race(preview.emit(0))

    def _emit_started(self, num_train_tasks: int, num_eval_tasks: int) -> None:
        """Emit the first events before counting, which may take longer than a start may."""
        emit_started(
            self.context,
            StartupInfo(
                engine="none",
                num_parameters=0,
                num_train_tasks=num_train_tasks,
                num_eval_tasks=num_eval_tasks,
            ),
        )
        num_tasks = num_train_tasks + num_eval_tasks
        self.context.journal.emit(PhaseStarted(step=0, phase="prompts", num_rollouts=num_tasks))

    async def close(self) -> None:
        """Do nothing: a preview has no resources."""

    def summary(self) -> str:
        """Return the result in a few words."""
        return f"rendered the prompts, {len(self._texts)} of them in full"


def build_preview(context: AttemptContext, provider: EnvProvider | None = None) -> Preview:
    """Return the job of a run of kind `preview`; `provider` replaces the spec's own."""
    return Preview(context, provider)


def _check_keys(keys: Sequence[str], tasks: Sequence[Task]) -> None:
    task_keys = {task.key for task in tasks}
    unknown = sorted(set(keys) - task_keys)
    if unknown:
        example = min(task_keys, default="none")
        raise DataError(
            f"preview.task_keys names {unknown[0]!r}, which is not a task of this run;"
            f" an example of its tasks is {example}"
        )
