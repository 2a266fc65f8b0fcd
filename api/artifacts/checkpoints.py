"""Checkpoints of a run: which there are, what is in one, and its files."""

from __future__ import annotations

import errno
import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import distinct_on
from sqlalchemy.orm import Session

from api.artifacts.errors import ArtifactNotFound
from api.tables import Checkpoint
from trainer.contract.rundir import MANIFEST, run_key
from trainer.stores.base import BlobMissing, BlobStore, StoreError, checked_key

CHUNK_BYTES = 1 << 20
NO_FILE = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.ENAMETOOLONG})
"""What a file system says of a name under which no file can be."""


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
    """Return the checkpoint at a step; raises ArtifactNotFound, which names those there are."""
    checkpoints = list_checkpoints(session, run_id)
    for checkpoint in checkpoints:
        if checkpoint.step == step:
            return checkpoint
    steps = ", ".join(str(checkpoint.step) for checkpoint in checkpoints) or "none"
    raise ArtifactNotFound(f"Run {run_id} has no checkpoint at step {step}; it has: {steps}.")


def read_manifest(store: BlobStore, checkpoint: Checkpoint) -> Any:  # noqa: ANN401 (any JSON)
    """Return the checkpoint's manifest; raises ArtifactNotFound when its file is gone or torn."""
    key = run_key(checkpoint.run_id, checkpoint.path, MANIFEST)
    try:
        return json.loads(store.get(key))
    except BlobMissing as error:
        raise ArtifactNotFound(f"The manifest of step {checkpoint.step} is gone.") from error
    except ValueError as error:
        raise ArtifactNotFound(f"The manifest of step {checkpoint.step} is damaged.") from error


def open_file(store: BlobStore, checkpoint: Checkpoint, path: str) -> tuple[int, Iterator[bytes]]:
    """Return the size and the content, in chunks, of one file of the checkpoint.

    Raises:
        ArtifactNotFound: the checkpoint has no such file, or `path` is not inside it.
        StoreError: the store does not answer.
    """
    gone = ArtifactNotFound(f"The checkpoint at step {checkpoint.step} has no file {path!r}.")
    try:
        key = checked_key(run_key(checkpoint.run_id, checkpoint.path, path))
    except StoreError as error:
        raise gone from error
    try:
        local = store.local_path(key)
        if local is not None:
            return _stream(local.open("rb"), local.stat().st_size)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / "file"
            store.get_file(key, copy)
            # The open file outlives its name: nothing is left behind, whatever the client does.
            return _stream(copy.open("rb"), copy.stat().st_size)
    except BlobMissing as error:
        raise gone from error
    except OSError as error:
        if error.errno in NO_FILE:
            raise gone from error
        raise


def stream_file(path: Path) -> tuple[int, Iterator[bytes]]:
    """Return the size and the content, in chunks, of a file, which may go as soon as it is open."""
    return _stream(path.open("rb"), path.stat().st_size)


def _stream(file: Any, size: int) -> tuple[int, Iterator[bytes]]:  # noqa: ANN401
    def chunks() -> Iterator[bytes]:
        with file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    return size, chunks()


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
    }
