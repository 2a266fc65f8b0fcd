"""Reads the prompts that a trainer stored in full."""

from __future__ import annotations

import json
from typing import Any

from api.results.artifacts.errors import ArtifactNotFound
from hillclimb.blobs.archive.gzip_file import GzipLimit, GzipUnreadable, stored_lines
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.rundir import run_key

FILE_LIMIT = GzipLimit(unpacked_bytes=128 << 20)
"""What is read of a file of prompts: all of it is in memory."""


def read_prompts(store: BlobStore, run_id: str, file: str) -> list[dict[str, Any]]:
    """Return the prompts of a file in its order; raises ArtifactNotFound."""
    try:
        return [json.loads(line) for line in stored_lines(store, run_key(run_id, file), FILE_LIMIT)]
    except BlobMissing as error:
        raise ArtifactNotFound(f"The prompts of run {run_id} are not in the store.") from error
    except GzipUnreadable as error:
        raise ArtifactNotFound(f"The file of the prompts of run {run_id} {error}.") from error
    except ValueError as error:
        raise ArtifactNotFound(f"The file of the prompts of run {run_id} is damaged.") from error
