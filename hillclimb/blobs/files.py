"""Local files that stores write: whole or not at all, with the system's errors as ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hillclimb.blobs.base import DISK_FULL, BlobMissing, StoreError, StoreFull

PART = ".part-"
"""Prefix of a file being written; never a blob."""


@contextmanager
def partial(target: Path) -> Iterator[Path]:
    """A name beside `target` to write to; the file is gone afterwards unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f"{PART}{uuid.uuid4().hex}"
    try:
        yield part
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Name the system's errors in the block by what they mean for the blob."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BlobMissing(f"no blob {key!r}") from error
    except OSError as error:
        kind = StoreFull if error.errno in DISK_FULL else StoreError
        raise kind(f"blob {key!r}: {error.strerror or error}") from error
