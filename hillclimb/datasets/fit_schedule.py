"""Fits `schedule` to the number of training tasks: epochs become steps, batches fit few tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hillclimb.spec.run import RunSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A spec whose schedule fits its tasks, and a sentence for each key that was changed."""

    spec: RunSpec
    changes: tuple[str, ...] = ()


def fit_schedule(spec: RunSpec, tasks: Mapping[str, int]) -> Fitted:
    """Return the spec with steps for its epochs, and with batches that `data.max_tasks` can fill.

    `tasks` are the numbers of training tasks of the environments, as `data.max_tasks` leaves them.
    A spec without `schedule.epochs` and `data.max_tasks` is returned unchanged, and so is one that
    was fitted before.

    Raises:
        pydantic.ValidationError: the number of steps is above the schema's limit.
    """
    num_tasks = sum(tasks.values())
    is_fitted = spec.schedule.epochs is None and spec.data.max_tasks is None
    if spec.kind != "train" or is_fitted or not num_tasks:
        return Fitted(spec=spec)
    schedule = spec.model_dump(mode="json")["schedule"]
    changes = [*_smaller_batch(spec, schedule, tasks), *_steps(schedule, num_tasks)]
    if not changes:
        return Fitted(spec=spec)
    body = spec.model_dump(mode="json") | {"schedule": schedule}
    return Fitted(spec=RunSpec.model_validate(body), changes=tuple(changes))


def fit_generated(spec: RunSpec) -> Fitted:
    """Return `fit_schedule` of a spec whose tasks are generated; raises as it does."""
    if spec.data.dataset is not None:
        return Fitted(spec=spec)
    return fit_schedule(spec, spec.data.num_train_tasks())


def _smaller_batch(spec: RunSpec, schedule: dict[str, Any], tasks: Mapping[str, int]) -> list[str]:
    """Lower the batch to what the tasks can fill where `data.max_tasks` leaves few, in place."""
    batch, mini, largest = (
        schedule["train_batch_size"],
        schedule["mini_batch_size"],
        spec.data.largest_step(tasks),
    )
    if spec.data.max_tasks is None or batch <= largest:
        return []
    new_mini = next(size for size in range(min(mini, largest), 0, -1) if largest % size == 0)
    schedule |= {"train_batch_size": largest, "mini_batch_size": new_mini}
    return [
        f"schedule.train_batch_size is {largest} instead of {batch}, and mini_batch_size {new_mini}"
        f" instead of {mini}: data.max_tasks leaves {sum(tasks.values())} training tasks, and no"
        " step draws a task twice."
    ]


def _steps(schedule: dict[str, Any], num_tasks: int) -> list[str]:
    """Turn epochs into steps, in place."""
    epochs, batch = schedule["epochs"], schedule["train_batch_size"]
    if epochs is None:
        return []
    steps = math.ceil(epochs * num_tasks / batch)
    schedule |= {"epochs": None, "total_steps": steps}
    return [
        f"schedule.total_steps is {steps}: {epochs:g} epochs of {num_tasks} training tasks,"
        f" {batch} a step."
    ]
