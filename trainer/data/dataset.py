"""The tasks of a registered dataset: fetched by the version's id, compared with its digest."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from trainer.contract.data import DatasetRef
from trainer.contract.datasets.files import SPLIT, TASKS, version_key
from trainer.contract.datasets.prepare import read_split_line, version_digest
from trainer.contract.datasets.rows import TaskRow
from trainer.envs.minifleet.catalog import find_task
from trainer.errors import DataError, SpecError
from trainer.stores.base import BlobMissing, BlobStore
from trainer.types import Task

DAMAGED = (EOFError, OSError, zlib.error, ValueError, KeyError, TypeError)
"""What reading a file raises that is not what was stored; a row that is no task is a ValueError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskSets:
    """What a run trains on and what it is measured on."""

    train: tuple[Task, ...]
    eval: tuple[Task, ...]


def dataset_tasks(
    store: BlobStore, dataset: DatasetRef, env_keys: Sequence[str], provider: str
) -> TaskSets:
    """Return the tasks of a dataset's version in these environments, in their order, by key.

    Raises:
        SpecError: the reference was not filled in by the service.
        DataError: the files are missing or are not those of the version, or a task is not one
            that the provider has.
        StoreError: the store does not answer.
    """
    if dataset.id is None or dataset.digest is None:
        raise SpecError(
            f"data.dataset {dataset} has no id and no digest: submit the spec to the service, which"
            " fills them in"
        )
    make = _minifleet_task if provider == "minifleet" else _task
    rows = _read(store, dataset.id, dataset.digest)
    number = {key: place for place, key in enumerate(env_keys)}
    chosen = [(number[row.env_key], row, split) for row, split in rows if row.env_key in number]
    chosen.sort(key=lambda each: each[:1])  # the rows come sorted by key
    return TaskSets(
        train=tuple(make(row) for _, row, split in chosen if split == "train"),
        eval=tuple(make(row) for _, row, split in chosen if split == "eval"),
    )


def _read(store: BlobStore, version_id: str, digest: str) -> list[tuple[TaskRow, str]]:
    """Return the version's rows, each with its split, by key."""
    with TemporaryDirectory(prefix="hillclimb-dataset-") as folder:
        tasks, splits = _Lines(Path(folder) / TASKS), _Lines(Path(folder) / SPLIT)
        try:
            for lines in (tasks, splits):
                store.get_file(version_key(version_id, lines.path.name), lines.path)
            split_of = {line.key: line.split for line in map(read_split_line, splits)}
            rows = [TaskRow.model_validate_json(line) for line in tasks]
            placed: list[tuple[TaskRow, str]] = [(row, split_of[row.key]) for row in rows]
        except BlobMissing as error:
            raise DataError(f"the files of dataset version {version_id} are gone") from error
        except DAMAGED as error:
            raise DataError(f"dataset version {version_id} is damaged: {error}") from error
    found = version_digest(tasks.sha256.hexdigest(), splits.sha256.hexdigest())
    if found != digest:
        raise DataError(
            f"dataset version {version_id} is not what the run was given: its digest is {found},"
            f" not {digest}"
        )
    return placed


class _Lines:
    """The lines of a compressed file, hashed as they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = hashlib.sha256()

    def __iter__(self) -> Iterator[bytes]:
        with gzip.open(self.path, "rb") as lines:
            for line in lines:
                self.sha256.update(line)
                yield line


def _task(row: TaskRow) -> Task:
    """Return a row as a task whose environment is elsewhere."""
    template, held_out = row.metadata.get("template"), row.metadata.get("held_out_template")
    return Task(
        key=row.key,
        env_key=row.env_key,
        prompt=row.prompt,
        template=template if isinstance(template, str) else row.env_key,
        difficulty=row.difficulty or 1,
        held_out_template=held_out is True,
        env_variables=dict(row.env_variables),
        payload={
            "env_version": row.env_version,
            "data_key": row.data_key,
            "data_version": row.data_version,
            "verifier_code": row.verifier_code,
            "task_modality": row.task_modality,
            "metadata": dict(row.metadata),
        },
    )


def _minifleet_task(row: TaskRow) -> Task:
    """Return a task of our own apps: its world from its key, what the model sees from the row."""
    task = find_task(row.key)
    if task is None or task.env_key != row.env_key:
        raise DataError(
            f"task {row.key!r} of {row.env_key} is none that minifleet has: its keys are"
            " ENV/SPLIT/TEMPLATE/NUMBER, as `hillclimb fleet tasks` writes them. Set"
            " environment.provider to where the dataset's tasks are played"
        )
    if missing := sorted(task.env_variables.keys() - row.env_variables.keys()):
        raise DataError(
            f"task {row.key!r} has no {missing[0]} in its env_variables, which its world is made"
            " with: register the tasks again as `hillclimb fleet tasks` writes them"
        )
    return replace(task, prompt=row.prompt, env_variables=dict(row.env_variables))
