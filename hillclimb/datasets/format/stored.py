"""The files of a version as they are stored: lines of JSON, compressed, sorted by key."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from hillclimb.datasets.format.lineage import SplitRow
from hillclimb.datasets.format.rows import TaskRow


class Digest(Protocol):
    """A hash that is being computed, as of `hashlib`."""

    def update(self, data: bytes, /) -> None:
        """Add bytes to the hash."""


def read_lines(path: Path, digest: Digest | None = None) -> Iterator[bytes]:
    """Yield the lines of a file, each with its newline, and add them to `digest`."""
    with gzip.open(path, "rb") as lines:
        for line in lines:
            if digest is not None:
                digest.update(line)
            yield line


def read_rows(path: Path, digest: Digest | None = None) -> Iterator[TaskRow]:
    """Yield the tasks of `tasks.jsonl.gz`; an invalid line raises ValueError."""
    for line in read_lines(path, digest):
        yield TaskRow.model_validate_json(line)


def read_splits(path: Path, digest: Digest | None = None) -> Iterator[SplitRow]:
    """Yield the rows of `split.jsonl.gz`; an invalid line raises ValueError or TypeError."""
    for line in read_lines(path, digest):
        yield read_split_line(line)


def split_line(row: SplitRow) -> bytes:
    """Return a split row as the bytes that are stored and hashed: one line, without its newline."""
    fields = {
        "fingerprint": row.fingerprint,
        "key": row.key,
        "reason": row.reason,
        "split": row.split,
    }
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def read_split_line(line: str | bytes) -> SplitRow:
    """Return the split row of a line that `split_line` wrote."""
    return SplitRow(**json.loads(line))
