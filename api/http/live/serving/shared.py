"""Files that the API processes of one address share: rate limits, and durations for Prometheus."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from api.http.live.serving.bucket_table import BucketTable

LIMITS_VARIABLE = "HILLCLIMB_SHARED_LIMITS"
"""Set by the parent for its processes alone: the file of their buckets."""
DURATIONS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Prometheus' client reads it when it is imported, and then counts in files of this folder."""


@contextmanager
def shared_folder(folder: Path | None) -> Iterator[None]:
    """Make the files anew, in a temporary folder by default, for processes that start meanwhile."""
    path = folder or Path(tempfile.mkdtemp(prefix="hillclimb-api-"))
    shutil.rmtree(path, ignore_errors=True)
    durations, limits = path / "durations", path / "limits"
    durations.mkdir(mode=0o700, parents=True)
    BucketTable.create(limits)
    os.environ |= {LIMITS_VARIABLE: str(limits), DURATIONS_VARIABLE: str(durations)}
    try:
        yield
    finally:
        shutil.rmtree(path, ignore_errors=True)


def open_table(environment: Mapping[str, str]) -> BucketTable:
    """Return the buckets of this address, or those of a process that has it to itself."""
    path = environment.get(LIMITS_VARIABLE)
    return BucketTable.private() if path is None else BucketTable.shared(Path(path))
