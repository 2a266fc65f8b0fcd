"""Trajectory files of a job: brought from the blob store, and read line by line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hillclimb.blobs.archive.gzip_file import TRAJECTORIES_LIMIT, GzipUnreadable, gzip_lines
from hillclimb.blobs.base import BlobMissing, BlobStore


def fetch_files(
    blobs: BlobStore, files: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Bring the files (rollouts by blob key) into the folder; return the rollouts by file name."""
    by_name = {}
    for number, (key, rollouts) in enumerate(files.items()):
        name = f"{number}.jsonl.gz"
        # The process finds out that a file is missing, and says so of each of its rollouts.
        with suppress(BlobMissing):
            blobs.get_file(key, folder / name)
        by_name[name] = rollouts
    return by_name


def read_lines(path: Path, numbers: set[int]) -> dict[int, bytes]:
    """Return the lines of a trajectory file; none of a missing file, nor after a fault."""
    lines: dict[int, bytes] = {}
    try:
        with path.open("rb") as file:
            for number, line in enumerate(gzip_lines(file, TRAJECTORIES_LIMIT)):
                if number in numbers:
                    lines[number] = line
    except (GzipUnreadable, OSError):
        return lines
    return lines
