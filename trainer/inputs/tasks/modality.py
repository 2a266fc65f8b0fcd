"""Check that a run's tasks need text only."""

from __future__ import annotations

from collections.abc import Iterable

from hillclimb.environment.task import Task
from hillclimb.spec.environment.fleet import refuse_images
from trainer.errors import SpecError


def refuse_screens(tasks: Iterable[Task]) -> None:
    """Refuse tasks that need screenshots.

    Raises:
        SpecError: the modality of one needs images.
    """
    for task in tasks:
        try:
            refuse_images(str(task.payload.get("task_modality") or ""), f"task {task.key}")
        except ValueError as error:
            raise SpecError(str(error)) from error
