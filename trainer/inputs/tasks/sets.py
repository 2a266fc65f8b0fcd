"""The tasks of a run: generated, or those of a registered dataset."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from hillclimb.blobs.base import BlobStore
from hillclimb.environment.task import Task
from hillclimb.minifleet.tasks import TaskGenerationError, minifleet_tasks
from hillclimb.spec.data import DataSpec, limited_counts
from hillclimb.spec.run import RunSpec
from trainer.errors import DataError
from trainer.inputs.tasks.dataset import TaskSets, dataset_tasks
from trainer.inputs.tasks.modality import refuse_screens
from trainer.inputs.tasks.seeded import seeded_eval_tasks, seeded_train_tasks


def load_tasks(spec: RunSpec, store: BlobStore) -> TaskSets:
    """Return the training tasks and the eval tasks of a run.

    Raises:
        SpecError, DataError, StoreError: as `dataset_tasks`, `minifleet_tasks` and
            `refuse_screens`.
    """
    tasks = _all_tasks(spec, store)
    refuse_screens((*tasks.train, *tasks.eval))
    return tasks


def _all_tasks(spec: RunSpec, store: BlobStore) -> TaskSets:
    data = spec.data
    if data.dataset is not None:
        every = dataset_tasks(store, data.dataset, data.env_keys, spec.environment.provider)
        return _limited(_of_modality(every, data), data)
    if spec.environment.provider == "openenv":
        return TaskSets(train=seeded_train_tasks(spec), eval=seeded_eval_tasks(spec))
    try:
        return _generated_tasks(data)
    except TaskGenerationError as error:
        raise DataError(str(error)) from error


def _of_modality(tasks: TaskSets, data: DataSpec) -> TaskSets:
    """Return the tasks of `data.modality`; null takes all."""
    if data.modality is None:
        return tasks
    return TaskSets(
        train=tuple(task for task in tasks.train if task.modality == data.modality),
        eval=tuple(task for task in tasks.eval if task.modality == data.modality),
    )


def _limited(tasks: TaskSets, data: DataSpec) -> TaskSets:
    """Return the tasks with at most `data.max_tasks` for training, drawn by `data.seed`.

    The tasks of a smaller limit are among those of a larger one. Generated tasks are cut when they
    are made: `DataSpec.num_train_tasks`.

    Raises:
        DataError: the limit is smaller than the number of environments.
    """
    try:
        counts = limited_counts(Counter(task.env_key for task in tasks.train), data.max_tasks)
    except ValueError as error:
        raise DataError(str(error)) from error
    chosen: list[Task] = []
    for env_key, group in groupby(tasks.train, key=lambda task: task.env_key):
        own = list(group)
        order = list(range(len(own)))
        random.Random(f"{data.seed}/{env_key}/max_tasks").shuffle(order)
        chosen += [own[index] for index in sorted(order[: counts[env_key]])]
    return replace(tasks, train=tuple(chosen))


def _generated_tasks(data: DataSpec) -> TaskSets:
    return TaskSets(
        train=minifleet_tasks(data.env_keys, "train", data.num_train_tasks(), data.seed),
        eval=minifleet_tasks(
            data.env_keys,
            "eval",
            data.eval_tasks_per_env,
            data.seed,
            held_out_share=data.held_out_template_share,
        ),
    )


def some_train_tasks(spec: RunSpec, store: BlobStore, per_env: int) -> tuple[Task, ...]:
    """Return at most `per_env` training tasks of each environment, drawn by `data.seed`.

    Raises:
        DataError: there is no training task; and as `load_tasks`.
    """
    data = spec.data
    if data.dataset is None:
        # Generated tasks are in random order already, the same whatever their number.
        counts = {key: min(number, per_env) for key, number in data.num_train_tasks().items()}
        fewer = data.model_copy(update={"train_tasks_by_env": counts, "eval_tasks_per_env": 0})
        return load_tasks(spec.model_copy(update={"data": fewer}), store).train
    tasks = _sample_per_env(load_tasks(spec, store).train, per_env, data.seed)
    if not tasks:
        raise DataError(f"dataset {data.dataset} has no training task in these environments")
    return tasks


def _sample_per_env(tasks: Sequence[Task], per_env: int, seed: int) -> tuple[Task, ...]:
    """Draw from each environment's tasks, which are adjacent."""
    sample: list[Task] = []
    for env_key, group in groupby(tasks, key=lambda task: task.env_key):
        own = list(group)
        sample += random.Random(f"{seed}/{env_key}/some").sample(own, min(per_env, len(own)))
    return tuple(sample)
