"""Reads the tasks of a version: a page by key, or one.

The two files of a version are sorted by key and decompressed while they are read: a page costs at
most one pass over the version, and only the page is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from api.datasets.blobs import local_copy
from api.datasets.errors import TaskNotFound
from api.tables import DatasetVersion
from hillclimb.blobs.base import BlobStore
from hillclimb.datasets.format.files import SPLIT, TASKS
from hillclimb.datasets.format.stored import read_lines

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFilters:
    """Filters of a page of tasks; null does not filter."""

    env: str | None = None
    split: str | None = None
    search: str | None = None
    """Part of the key, case-insensitive."""

    def admits(self, place: Json) -> bool:
        """Return True if a task matches, by its line of the split table."""
        if self.split is not None and place["split"] != self.split:
            return False
        return self.search is None or self.search.casefold() in place["key"].casefold()


def list_tasks(
    store: BlobStore, version: DatasetVersion, filters: TaskFilters, *, after: str, limit: int
) -> list[Json]:
    """Return up to `limit` tasks with keys above `after`, each with its split and reason.

    Raises:
        DatasetNotFound: the version's files are gone.
        StoreError: the store does not answer.
    """
    tasks: list[Json] = []
    for place, line in _pairs(store, version):
        if place["key"] <= after or not filters.admits(place):
            continue
        row = _as_payload(place, line)
        if filters.env is None or row["env_key"] == filters.env:
            tasks.append(row)
            if len(tasks) == limit:
                break
    return tasks


def find_task(store: BlobStore, version: DatasetVersion, key: str) -> Json:
    """Return one task with its split; raises TaskNotFound, or as `list_tasks`."""
    for place, line in _pairs(store, version):
        if place["key"] == key:
            return _as_payload(place, line)
    raise TaskNotFound(f"Version {version.number} has no task {key!r}.")


def _pairs(store: BlobStore, version: DatasetVersion) -> Iterator[tuple[Json, bytes]]:
    with (
        local_copy(store, version.id, SPLIT) as splits,
        local_copy(store, version.id, TASKS) as tasks,
    ):
        for place, line in zip(read_lines(splits), read_lines(tasks), strict=True):
            yield orjson.loads(place), line


def _as_payload(place: Json, line: bytes) -> Json:
    row: Json = orjson.loads(line)
    return row | {"split": place["split"], "reason": place["reason"]}
