"""Packs SkyRL's dumps of a run, from a directory or a bucket, into the zip that is uploaded.

A bucket is read here, with the credentials of the user's own environment: the service would have to
read any address that a project names with credentials that are the operator's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from zipfile import ZIP_DEFLATED, ZipFile

from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.blobs.locate import open_store
from hillclimb.client.errors import ImportSourceError
from hillclimb.stats.trajectories.skyrl.layout import place_of

S3 = "s3://"


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedDump:
    """The zip of a dump, which is deleted at the end of `packed`."""

    path: Path
    name: str
    """The last part of the source's path: the run's name in SkyRL."""
    num_files: int


@contextmanager
def packed(source: str, *, steps: frozenset[int] = frozenset()) -> Iterator[PackedDump]:
    """Yield the zip of the files `global_step_N/{env}.jsonl` below a directory or an S3 address.

    Other files are left out. `steps` selects some; empty: all.

    Raises:
        ImportSourceError: the source cannot be read, or has no such file.
    """
    with tempfile.TemporaryDirectory(prefix="hillclimb-import-") as folder:
        target = Path(folder, "dump.zip")
        try:
            num_files = _pack(_open(source), target, Path(folder, "file"), steps)
        except (StoreError, OSError) as error:
            raise ImportSourceError(f"{source} cannot be read: {error}") from error
        if not num_files:
            raise ImportSourceError(
                f"{source} has no file global_step_N/ENVIRONMENT.jsonl"
                + (" of these steps" if steps else "")
                + ": name the folder of one run, such as s3://BUCKET/evals/RUN"
            )
        yield PackedDump(path=target, name=run_name(source), num_files=num_files)


def run_name(source: str) -> str:
    """Return the last part of the source's path."""
    path = urlsplit(source).path if source.startswith(S3) else str(Path(source).resolve())
    return path.rstrip("/").rpartition("/")[2]


def _open(source: str) -> BlobStore:
    if source.startswith(S3):
        return open_store(source)
    folder = Path(source)
    if not folder.is_dir():
        raise ImportSourceError(f"there is no directory {source}")
    return open_store(str(folder.resolve()))


def _pack(store: BlobStore, target: Path, file: Path, steps: frozenset[int]) -> int:
    """Write the zip, one file after the other, and return their number."""
    number = 0
    with ZipFile(target, "w", ZIP_DEFLATED) as archive:
        for key in store.list(""):
            place = place_of(key)
            if place is None or (steps and place.step not in steps):
                continue
            store.get_file(key, file)
            archive.write(file, place.path)
            number += 1
    return number
