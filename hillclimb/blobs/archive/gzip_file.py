"""Reads gzip that somebody else has compressed: line by line, and no more than a limit.

A megabyte of gzip may unpack to a gigabyte. One line is in memory at a time, and reading stops
where a file has more bytes than its reader allows, or far more than its size explains.

Errors:
    GzipUnreadable      the message is the end of a sentence that begins with the file
    ├── GzipDamaged     it is no gzip, or torn
    └── GzipTooLarge    it is beyond a limit
"""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.files import translated

GZIP_MAGIC = b"\x1f\x8b"
"""First bytes of every gzip file (RFC 1952, 2.3.1)."""


class GzipUnreadable(ValueError):
    """A file cannot be read."""


class GzipDamaged(GzipUnreadable):
    """A file is no gzip, or torn."""


class GzipTooLarge(GzipUnreadable):
    """A file unpacks to more than its reader allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GzipLimit:
    """Sizes that a reader allows."""

    unpacked_bytes: int
    line_bytes: int = 64 << 20
    ratio: int = 100
    """Unpacked bytes per byte of the file, from `RATIO_FROM_BYTES` on. Trajectories with their
    log-probs have about 10, and gzip cannot have more than 1,032."""


RATIO_FROM_BYTES = 64 << 20
"""Unpacked size up to which any ratio is read: short files of one repeated text are no bombs."""


TRAJECTORIES_LIMIT = GzipLimit(unpacked_bytes=4 << 30)
"""Of a file of trajectories, which has all rollouts of a step or an evaluation."""


def gzip_lines(packed: BinaryIO, limit: GzipLimit) -> Iterator[bytes]:
    """Yield the lines of a seekable file, each with its end.

    Raises:
        GzipUnreadable: after the lines before the fault.
    """
    size = packed.seek(0, io.SEEK_END)
    packed.seek(0)
    allowed = min(limit.unpacked_bytes, max(RATIO_FROM_BYTES, limit.ratio * size))
    room = allowed
    try:
        with gzip.GzipFile(fileobj=packed, mode="rb") as file:
            while line := file.readline(min(limit.line_bytes, room) + 1):
                room -= len(line)
                if room < 0:
                    raise GzipTooLarge(f"unpacks to more than {_size(allowed)}")
                if len(line) > limit.line_bytes:
                    raise GzipTooLarge(f"has a line of more than {_size(limit.line_bytes)}")
                yield line
    except (OSError, EOFError, zlib.error) as error:
        raise GzipDamaged(f"is damaged: {error}") from error


def unpacked_lines(data: bytes, limit: GzipLimit) -> Iterator[bytes]:
    """Yield the lines of compressed bytes, as `gzip_lines`."""
    return gzip_lines(io.BytesIO(data), limit)


def stored_lines(store: BlobStore, key: str, limit: GzipLimit) -> Iterator[bytes]:
    """Yield the lines of a blob, as `gzip_lines`; a remote one lies in a file while it is read.

    Raises:
        BlobMissing: there is none.
        StoreError: the store does not respond.
        GzipUnreadable: after the lines before the fault.
    """
    path = store.local_path(key)
    if path is not None:
        yield from _lines_of(path, key, limit)
        return
    with tempfile.TemporaryDirectory(prefix="hillclimb-gzip-") as folder:
        path = Path(folder, "file")
        store.get_file(key, path)
        yield from _lines_of(path, key, limit)


def _lines_of(path: Path, key: str, limit: GzipLimit) -> Iterator[bytes]:
    with translated(key):
        file = path.open("rb")
    with file:
        yield from gzip_lines(file, limit)


def _size(number: int) -> str:
    return f"{number / (1 << 20):,.0f} MiB" if number >= 1 << 20 else f"{number:,} bytes"
