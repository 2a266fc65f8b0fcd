"""Stores, reads and deletes the files of a dataset version in the blob store.

A version has the three files of `hillclimb/datasets/format/files.py`. It exists once its database
row does, which is written last; a sweep deletes files without a row.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from api.datasets import store as queries
from api.datasets.errors import DatasetNotFound
from api.tables.database import Database
from api.tables.ids import born_at
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.datasets.format.files import LINEAGE, PREFIX, SPLIT, TASKS, version_key

ORPHAN_AGE = timedelta(hours=1)
"""Far longer than creating a version may take: a younger one may still get its row."""


def put_version(store: BlobStore, version_id: str, folder: Path) -> None:
    """Store the files of a version; its id is new, so the prefix is empty."""
    for name in (TASKS, SPLIT, LINEAGE):
        store.put_file(version_key(version_id, name), folder / name)


def delete_version(store: BlobStore, version_id: str) -> None:
    """Delete the files of a version that has no row."""
    store.delete_prefix(f"{PREFIX}/{version_id}")


def fetch(store: BlobStore, version_id: str, name: str, target: Path) -> None:
    """Download a file of a version to `target`; raises DatasetNotFound when it is missing."""
    try:
        store.get_file(version_key(version_id, name), target)
    except BlobMissing as error:
        raise DatasetNotFound(f"The file {name} of {version_id} is not in the store.") from error


@contextmanager
def local_copy(store: BlobStore, version_id: str, name: str) -> Iterator[Path]:
    """Yield a local path of a file of a version, downloaded unless the store is a directory."""
    key = version_key(version_id, name)
    local = store.local_path(key)
    if local is not None and local.is_file():
        yield local
        return
    with tempfile.TemporaryDirectory(prefix="hillclimb-dataset-") as folder:
        copy = Path(folder) / name
        fetch(store, version_id, name, copy)
        yield copy


def sweep_orphans(database: Database, store: BlobStore, *, now: datetime) -> int:
    """Delete the files of versions that never got a row; return the number of versions."""
    ids = {key.split("/")[1] for key in store.list(PREFIX)}
    old = {each for each in ids if (born := born_at(each)) and born < now - ORPHAN_AGE}
    if not old:
        return 0
    with database.transaction() as session:
        orphans = old - queries.known_versions(session, old)
    for version_id in sorted(orphans):
        delete_version(store, version_id)
    return len(orphans)
