"""Checkpoints of a run: their list, manifests and files."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from api.results.artifacts.errors import ArtifactNotFound
from api.tables import Checkpoint
from hillclimb.blobs.base import BlobMissing, BlobStore, StoreError, checked_key
from hillclimb.protocol.rundir import MANIFEST, run_key

CHUNK_BYTES = 1 << 20
FETCH_BYTES = 8 << 20
"""Size of a request to a remote store; the response is held in memory."""
ADDRESS_S = 3600
"""Lifetime of the address of a file (seconds)."""
NO_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG})
"""Errors of a file system for a name that has no file."""


def list_checkpoints(session: Session, run_id: str) -> Sequence[Checkpoint]:
    """Return the complete checkpoints that still exist, highest step first, one per step."""
    query = (
        select(Checkpoint)
        .where(Checkpoint.run_id == run_id, Checkpoint.deleted_at.is_(None))
        .ext(distinct_on(Checkpoint.step))
        .order_by(Checkpoint.step.desc(), Checkpoint.attempt.desc())
    )
    return session.scalars(query).all()


def find_checkpoint(session: Session, run_id: str, step: int) -> Checkpoint:
    """Return the checkpoint at a step; raises ArtifactNotFound, which lists the others."""
    checkpoints = list_checkpoints(session, run_id)
    for checkpoint in checkpoints:
        if checkpoint.step == step:
            return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in checkpoints) or "none"
    raise ArtifactNotFound(f"Run {run_id} has no checkpoint at step {step}; it has: {steps}.")


def read_manifest(store: BlobStore, checkpoint: Checkpoint) -> Any:  # noqa: ANN401 (any JSON)
    """Return the checkpoint's manifest; raises ArtifactNotFound if it is missing or damaged."""
    key = run_key(checkpoint.run_id, checkpoint.path, MANIFEST)
    try:
        return json.loads(store.get(key))
    except BlobMissing as error:
        raise ArtifactNotFound(f"The manifest of step {checkpoint.step} is missing.") from error
    except ValueError as error:
        raise ArtifactNotFound(f"The manifest of step {checkpoint.step} is damaged.") from error


def file_address(store: BlobStore, checkpoint: Checkpoint, path: str) -> str | None:
    """Return a temporary public address of one file of the checkpoint.

    None for a store without addresses. Raises as `open_file`.
    """
    with _named(checkpoint, path) as key:
        store.size(key)
        return store.presign(key, method="GET", expires_s=ADDRESS_S)


def open_file(
    store: BlobStore, checkpoint: Checkpoint, path: str, *, first_byte: int = 0
) -> tuple[int, int, Iterator[bytes]]:
    """Return one file of the checkpoint: its size, the start of the content, the content in chunks.

    The content starts at `first_byte`, or at 0 if the file has fewer bytes.

    Raises:
        ArtifactNotFound: the checkpoint has no such file, or `path` is not inside it.
        StoreError: the store does not respond.
    """
    with _named(checkpoint, path) as key:
        size, local = store.size(key), store.local_path(key)
        start = first_byte if first_byte < size else 0
        if local is None:
            return size, start, _fetch(store, key, start, size)
        # An open file outlives its name: retention may delete it during the read.
        file = local.open("rb")
        file.seek(start)
        return size, start, _read(file)


@contextmanager
def _named(checkpoint: Checkpoint, path: str) -> Iterator[str]:
    """Yield the key of a file; raises ArtifactNotFound for an invalid or missing one."""
    missing = ArtifactNotFound(f"The checkpoint at step {checkpoint.step} has no file {path!r}.")
    try:
        key = checked_key(run_key(checkpoint.run_id, checkpoint.path, path))
    except StoreError as error:
        raise missing from error
    try:
        yield key
    except BlobMissing as error:
        raise missing from error
    except (OSError, StoreError) as error:
        cause = error.__cause__ if isinstance(error, StoreError) else error
        if isinstance(cause, OSError) and cause.errno in NO_FILE:
            raise missing from error
        raise


def stream_file(path: Path) -> tuple[int, Iterator[bytes]]:
    """Return the size and the chunks of a file, which may be deleted once this returns."""
    return path.stat().st_size, _read(path.open("rb"))


def _read(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


def _fetch(store: BlobStore, key: str, start: int, size: int) -> Iterator[bytes]:
    for position in range(start, size, FETCH_BYTES):
        yield store.get_range(key, position, min(FETCH_BYTES, size - position))


def checkpoint_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as JSON."""
    return {
        "object": "checkpoint",
        "run_id": checkpoint.run_id,
        "step": checkpoint.step,
        "attempt": checkpoint.attempt,
        "path": checkpoint.path,
        "manifest_sha256": checkpoint.manifest_sha256,
        "size_bytes": checkpoint.size_bytes,
        "final": checkpoint.final,
        "created_at": checkpoint.saved_at,
        "qualification": checkpoint.qualification or "untried",
        "refusal": checkpoint.refusal,
    }
