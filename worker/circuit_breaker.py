"""A circuit breaker around the blob store: after a slow error calls fail at once for a while.

One worker process does all short tasks: runs, relays, node messages, notices. A store that is down
costs seconds per call, and every sweep calls it for every run: the next scheduled tasks would
expire meanwhile, and no run would start or end during the outage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from hillclimb.blobs.base import BlobMissing, BlobStore, Method, StoreError
from worker.deadlines import CIRCUIT_OPEN_S, SLOW_ERROR_S

log = logging.getLogger(__name__)
T = TypeVar("T")


class CircuitOpen(StoreError):
    """The store was not called: it did not answer a moment ago."""


@dataclass(slots=True)
class CircuitBreakerStore:
    """Calls `store`; after a slow error every call fails for `open_s`.

    Each method may raise CircuitOpen, and the errors of the same method of `BlobStore`.
    """

    store: BlobStore
    open_s: float = CIRCUIT_OPEN_S
    clock: Callable[[], float] = time.monotonic
    _open_until: float = float("-inf")

    def _call(self, method: Callable[[], T]) -> T:
        began = self.clock()
        if began < self._open_until:
            raise CircuitOpen(
                f"the blob store is down: it is tried again in {self._open_until - began:.0f} s"
            )
        try:
            return method()
        except BlobMissing:
            raise
        except StoreError as error:
            if self.clock() - began > SLOW_ERROR_S:
                self._open_until = self.clock() + self.open_s
                log.warning("no calls to the blob store for %g s: %s", self.open_s, error)
            raise

    def check(self) -> None:
        """As `BlobStore.check`."""
        self._call(self.store.check)

    def put(self, key: str, data: bytes) -> None:
        """As `BlobStore.put`."""
        self._call(lambda: self.store.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        """As `BlobStore.put_file`."""
        self._call(lambda: self.store.put_file(key, path))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """As `BlobStore.put_if_absent`."""
        return self._call(lambda: self.store.put_if_absent(key, data))

    def get(self, key: str) -> bytes:
        """As `BlobStore.get`."""
        return self._call(lambda: self.store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As `BlobStore.get_range`."""
        return self._call(lambda: self.store.get_range(key, start, length))

    def size(self, key: str) -> int:
        """As `BlobStore.size`."""
        return self._call(lambda: self.store.size(key))

    def get_file(self, key: str, path: Path) -> None:
        """As `BlobStore.get_file`."""
        self._call(lambda: self.store.get_file(key, path))

    def exists(self, key: str) -> bool:
        """As `BlobStore.exists`."""
        return self._call(lambda: self.store.exists(key))

    def list(self, prefix: str) -> tuple[str, ...]:
        """As `BlobStore.list`."""
        return self._call(lambda: self.store.list(prefix))

    def sizes(self, prefix: str) -> Mapping[str, int]:
        """As `BlobStore.sizes`."""
        return self._call(lambda: self.store.sizes(prefix))

    def delete_prefix(self, prefix: str) -> int:
        """As `BlobStore.delete_prefix`."""
        return self._call(lambda: self.store.delete_prefix(prefix))

    def presign(self, key: str, *, method: Method, expires_s: int) -> str | None:
        """As `BlobStore.presign`, which makes no request."""
        return self.store.presign(key, method=method, expires_s=expires_s)

    def local_path(self, key: str) -> Path | None:
        """As `BlobStore.local_path`, which makes no request."""
        return self.store.local_path(key)
