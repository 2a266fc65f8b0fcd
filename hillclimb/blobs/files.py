"""Atomic local files of the stores, and translation of the system's errors."""

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
    """Yield a path beside `target` to write to; delete the file unless the block renames it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.parent / f"{PART}{uuid.uuid4().hex}"
    try:
        yield part
    finally:
        with suppress(FileNotFoundError):
            part.unlink()


@contextmanager
def translated(key: str) -> Iterator[None]:
    """Translate the system's errors in the block into ours: missing, full, or failed."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BlobMissing(f"no blob {key!r}") from error
    except OSError as error:
        kind = StoreFull if error.errno in DISK_FULL else StoreError
        raise kind(f"blob {key!r}: {error.strerror or error}") from error
