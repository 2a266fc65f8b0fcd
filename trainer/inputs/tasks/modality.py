"""Which tasks a model without eyes can do."""

from __future__ import annotations

from collections.abc import Iterable

from trainer.contract.fleet import refuse_images
from trainer.errors import SpecError
from trainer.types import Task


def refuse_screens(tasks: Iterable[Task]) -> None:
    """Refuse tasks that are done by looking at a screen.

    Raises:
        SpecError: the modality of one needs images.
    """
    for task in tasks:
        try:
            refuse_images(str(task.payload.get("task_modality") or ""), f"task {task.key}")
        except ValueError as error:
            raise SpecError(str(error)) from error
