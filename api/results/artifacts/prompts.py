"""Reads the prompts that a trainer stored in full."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

from api.results.artifacts.errors import ArtifactNotFound
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.rundir import run_key


def read_prompts(store: BlobStore, run_id: str, file: str) -> list[dict[str, Any]]:
    """Return the prompts of a file in its order; raises ArtifactNotFound."""
    try:
        lines = gzip.decompress(store.get(run_key(run_id, file))).splitlines()
        return [json.loads(line) for line in lines]
    except BlobMissing as error:
        raise ArtifactNotFound(f"The prompts of run {run_id} are not in the store.") from error
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ArtifactNotFound(f"The file of the prompts of run {run_id} is damaged.") from error
