"""The tasks of a registered dataset: fetched by the version's id, compared with its digest."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.datasets.format.files import SPLIT, TASKS, version_key
from hillclimb.datasets.format.rows import TaskRow
from hillclimb.datasets.format.stored import read_rows, read_splits
from hillclimb.datasets.prepare import version_digest
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import find_task
from hillclimb.spec.data import DatasetRef
from trainer.errors import DataError, SpecError

DAMAGED = (EOFError, OSError, zlib.error, ValueError, KeyError, TypeError)
"""Errors of reading a damaged file; a row that is no task raises ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSets:
    """The training tasks and the eval tasks of a run."""

    train: tuple[Task, ...]
    eval: tuple[Task, ...]


def dataset_tasks(
    store: BlobStore, dataset: DatasetRef, env_keys: Sequence[str], provider: str
) -> TaskSets:
    """Return the tasks of a dataset's version in these environments, in their order, by key.

    Raises:
        SpecError: the reference was not filled in by the service.
        DataError: the files are missing or are not those of the version, or the provider lacks a
            task.
        StoreError: the store does not answer.
    """
    if dataset.id is None or dataset.digest is None:
        raise SpecError(
            f"data.dataset {dataset} has no id and no digest: submit the spec to the service, which"
            " fills them in"
        )
    rows = _read(store, dataset.id, dataset.digest)
    number = {key: place for place, key in enumerate(env_keys)}
    selected = [
        (row, split) for row, split in rows if row.env_key in number and split != "excluded"
    ]
    selected.sort(key=lambda each: number[each[0].env_key])  # the rows come sorted by key
    used = [row for row, _ in selected]
    tasks = _minifleet_tasks(used) if provider == "minifleet" else list(map(_task, used))
    places = [(task, split) for task, (_, split) in zip(tasks, selected, strict=True)]
    return TaskSets(
        train=tuple(task for task, split in places if split == "train"),
        eval=tuple(task for task, split in places if split == "eval"),
    )


def _read(store: BlobStore, version_id: str, digest: str) -> list[tuple[TaskRow, str]]:
    """Return the version's rows, each with its split, by key."""
    with TemporaryDirectory(prefix="hillclimb-dataset-") as folder:
        tasks, splits = hashlib.sha256(), hashlib.sha256()
        try:
            for name in (TASKS, SPLIT):
                store.get_file(version_key(version_id, name), Path(folder) / name)
            split_of = {row.key: row.split for row in read_splits(Path(folder) / SPLIT, splits)}
            rows = read_rows(Path(folder) / TASKS, tasks)
            placed: list[tuple[TaskRow, str]] = [(row, split_of[row.key]) for row in rows]
        except BlobMissing as error:
            raise DataError(f"the files of dataset version {version_id} are gone") from error
        except DAMAGED as error:
            raise DataError(f"dataset version {version_id} is damaged: {error}") from error
    actual = version_digest(tasks.hexdigest(), splits.hexdigest())
    if actual != digest:
        raise DataError(
            f"dataset version {version_id} is not the one in the spec: its digest is {actual},"
            f" not {digest}"
        )
    return placed


def _task(row: TaskRow) -> Task:
    """Return a row as a task whose environment another service runs."""
    template, held_out = row.metadata.get("template"), row.metadata.get("held_out_template")
    return Task(
        key=row.key,
        env_key=row.env_key,
        prompt=row.prompt,
        template=template if isinstance(template, str) else row.env_key,
        difficulty=row.difficulty,
        modality=row.task_modality,
        held_out_template=held_out is True,
        env_variables=row.variable_texts,
        payload={
            "env_variables": dict(row.env_variables),
            "env_version": row.env_version,
            "data_key": row.data_key,
            "data_version": row.data_version,
            "verifier_code": row.verifier_code,
            "task_modality": row.task_modality,
            "metadata": dict(row.metadata),
        },
    )


def _minifleet_tasks(rows: Iterable[TaskRow]) -> list[Task]:
    """Return tasks of our own apps: worlds from their keys, what the model sees from the rows.

    Raises:
        DataError: some rows are not tasks of ours; names the first one and counts the others.
    """
    tasks: list[Task] = []
    faults: list[str] = []
    for row in rows:
        task = find_task(row.key)
        fault = _minifleet_fault(row, task)
        if task is None or fault is not None:
            faults.append(fault or row.key)
        else:
            tasks.append(replace(task, prompt=row.prompt, env_variables=row.variable_texts))
    if faults:
        more = f" ({len(faults) - 1} more tasks of this dataset cannot be played either)"
        raise DataError(faults[0] + (more if len(faults) > 1 else ""))
    return tasks


def _minifleet_fault(row: TaskRow, task: Task | None) -> str | None:
    """Return the reason why minifleet cannot run a row as the task of its key, or None."""
    if task is None or task.env_key != row.env_key:
        return (
            f"task {row.key!r} of {row.env_key} is none that minifleet has: its keys are"
            " ENV/SPLIT/TEMPLATE/NUMBER, as `hillclimb fleet tasks` writes them. Set"
            " environment.provider to where the dataset's tasks are played"
        )
    texts = row.variable_texts
    for name, value in sorted(task.env_variables.items()):
        actual = texts.get(name)
        if actual is None:
            return (
                f"task {row.key!r} has no {name} in its env_variables, which its world is made"
                " with: register the tasks again as `hillclimb fleet tasks` writes them"
            )
        if actual != value:
            return (
                f"task {row.key!r} has {name} {actual[:80]!r} in its env_variables, and its world"
                f" is made with {value!r}: following the prompt would be graded as wrong. Register"
                " the tasks again as `hillclimb fleet tasks` writes them"
            )
    return None
