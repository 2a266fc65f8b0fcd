"""Stores the files that trackers write: a rented machine and its disk end with the run."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.protocol.rundir import AttemptDir, run_key, tracking_file

INTERVAL_S = 30.0
PATTERNS = ("wandb/*run-*/run-*.wandb", "tensorboard/*/events.out.tfevents.*")
"""Files of W&B, for `wandb sync`, and of TensorBoard, in the directory of the attempt."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class StoredFiles:
    """Copies changed files to the blob store, whole; a failure is logged and tried again."""

    store: BlobStore
    attempt_dir: AttemptDir
    _sizes: dict[Path, int] = field(default_factory=dict)
    _due_at: float = 0.0

    def store_if_due(self) -> None:
        """Store the files that have grown, at most every `INTERVAL_S`."""
        if time.monotonic() >= self._due_at:
            self.store_now()

    def store_now(self) -> None:
        """Store the files that have grown since they were stored."""
        self._due_at = time.monotonic() + INTERVAL_S
        run_id = self.attempt_dir.run_dir.name
        for path in self._files():
            size = path.stat().st_size
            if size == self._sizes.get(path):
                continue
            name = path.relative_to(self.attempt_dir.path).as_posix()
            try:
                key = run_key(run_id, tracking_file(self.attempt_dir.attempt, name))
                self.store.put_file(key, path)
            except StoreError as error:
                _log.warning("%s is not in the blob store: %s", name, error)
                return
            self._sizes[path] = size

    def _files(self) -> Iterator[Path]:
        root = self.attempt_dir.path
        yield from (path for pattern in PATTERNS for path in sorted(root.glob(pattern)))
