"""Turns every library's error for a full disk into `StorageFull`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from hillclimb.blobs.base import DISK_FULL, StoreFull
from trainer.errors import StorageFull

_NEARLY_NOTHING = 1024 * 1024
"""Free bytes below which a failed write is attributed to the full disk."""


@contextmanager
def raise_storage_full(directory: Path) -> Iterator[None]:
    """Raise `StorageFull` for a full disk in the block.

    torch and safetensors report a full disk by errors of their own, without a code. Any failure
    while almost no space is free under `directory` therefore counts as one.
    """
    try:
        yield
    except StorageFull:
        raise
    except StoreFull as error:
        raise StorageFull(f"the blob store is full: {error}") from error
    except (OSError, RuntimeError, SafetensorError) as error:
        if _is_full(error, directory):
            raise StorageFull(f"no space left in {directory}") from error
        raise


def _is_full(error: Exception, directory: Path) -> bool:
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return True
    if "No space left" in str(error):
        return True
    there = next((path for path in (directory, *directory.parents) if path.exists()), Path("/"))
    return shutil.disk_usage(there).free < _NEARLY_NOTHING
