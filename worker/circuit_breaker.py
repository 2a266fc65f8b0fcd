"""A blob store that is left alone for a while after it gave no answer.

One worker process does everything that waits for nothing: runs, relays, notes, messages. A store
that is away costs seconds each time it is asked, and it is asked by every sweep for every run: the
clock's next tasks would expire behind that, and no run would be started or ended for the outage.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trainer.stores.base import BlobMissing, BlobStore, Method, StoreError

log = logging.getLogger(__name__)
T = TypeVar("T")

SLOW_S = 1.0
"""An error that took this long to come is one of a store that is away; refusals come at once."""
REST_S = 30.0
"""Until it is asked again, by this process."""


class StoreResting(StoreError):
    """The store was not asked: it gave no answer a moment ago."""


@dataclass(slots=True)
class RestingStore:
    """Asks `store`; after an error that was long in coming nothing is asked for `rest_s`.

    Each method may raise StoreResting, and what the same one of `BlobStore` does.
    """

    store: BlobStore
    rest_s: float = REST_S
    clock: Callable[[], float] = time.monotonic
    _until: float = float("-inf")

    def _ask(self, answer: Callable[[], T]) -> T:
        began = self.clock()
        if began < self._until:
            raise StoreResting(f"the store is asked again in {self._until - began:.0f} s")
        try:
            return answer()
        except BlobMissing:
            raise
        except StoreError as error:
            if self.clock() - began > SLOW_S:
                self._until = self.clock() + self.rest_s
                log.warning("the store is left alone for %g s: %s", self.rest_s, error)
            raise

    def check(self) -> None:
        """As `BlobStore.check`."""
        self._ask(self.store.check)

    def put(self, key: str, data: bytes) -> None:
        """As `BlobStore.put`."""
        self._ask(lambda: self.store.put(key, data))

    def put_file(self, key: str, path: Path) -> None:
        """As `BlobStore.put_file`."""
        self._ask(lambda: self.store.put_file(key, path))

    def put_if_absent(self, key: str, data: bytes) -> bool:
        """As `BlobStore.put_if_absent`."""
        return self._ask(lambda: self.store.put_if_absent(key, data))

    def get(self, key: str) -> bytes:
        """As `BlobStore.get`."""
        return self._ask(lambda: self.store.get(key))

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """As `BlobStore.get_range`."""
        return self._ask(lambda: self.store.get_range(key, start, length))

    def size(self, key: str) -> int:
        """As `BlobStore.size`."""
        return self._ask(lambda: self.store.size(key))

    def get_file(self, key: str, path: Path) -> None:
        """As `BlobStore.get_file`."""
        self._ask(lambda: self.store.get_file(key, path))

    def exists(self, key: str) -> bool:
        """As `BlobStore.exists`."""
        return self._ask(lambda: self.store.exists(key))

    def list(self, prefix: str) -> tuple[str, ...]:
        """As `BlobStore.list`."""
        return self._ask(lambda: self.store.list(prefix))

    def delete_prefix(self, prefix: str) -> int:
        """As `BlobStore.delete_prefix`."""
        return self._ask(lambda: self.store.delete_prefix(prefix))

    def presign(self, key: str, *, method: Method, expires_s: int) -> str | None:
        """As `BlobStore.presign`, which asks nobody."""
        return self.store.presign(key, method=method, expires_s=expires_s)

    def local_path(self, key: str) -> Path | None:
        """As `BlobStore.local_path`, which asks nobody."""
        return self.store.local_path(key)
