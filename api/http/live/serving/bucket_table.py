"""Memory for token buckets that the processes of one address share, so that a limit is one limit.

A file of fixed size, mapped into each process. A name has eight places, by its digest; where all
are taken, the bucket that was quiet for longest is forgotten.
"""

from __future__ import annotations

import fcntl
import hashlib
import mmap
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

PLACES = 8
SETS = 4_096
DIGEST_BYTES = 16
BUCKET = struct.Struct(f"<{DIGEST_BYTES}sdd")
"""Digest of the name, tokens, and their time (s, on the machine's monotonic clock)."""
PLACES_OF_A_NAME = struct.Struct("<" + f"{DIGEST_BYTES}sdd" * PLACES)
NUM_BYTES = SETS * PLACES_OF_A_NAME.size
FREE = bytes(DIGEST_BYTES)
LOCK_S, PAUSE_S = 0.01, 50e-6
"""How long a process waits for the lock, and between two tries. It is never held for more than some
10 µs, unless its process waits for a core. One that was stopped with it must not stop the others:
they go on without it, and tokens that are taken at the same moment may count once."""


@dataclass(slots=True, kw_only=True)
class BucketTable:
    """Levels of buckets by name, in memory of this process or of several."""

    memory: mmap.mmap
    key: bytes
    """Nobody who does not know it can choose names that push each other out."""
    file: int | None = None
    """Descriptor of the file that others have mapped too."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def private(cls) -> BucketTable:
        """Return a table of this process alone."""
        return cls(memory=mmap.mmap(-1, NUM_BYTES), key=os.urandom(16))

    @classmethod
    def shared(cls, path: Path) -> BucketTable:
        """Return the table of a file that `create` made."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        key = os.pread(descriptor, 16, NUM_BYTES)
        return cls(memory=mmap.mmap(descriptor, NUM_BYTES), key=key, file=descriptor)

    @staticmethod
    def create(path: Path) -> None:
        """Write the file of an empty table."""
        with path.open("xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.truncate(NUM_BYTES)
            file.seek(NUM_BYTES)
            file.write(os.urandom(16))

    def update(self, name: str, change: Callable[[float, float], tuple[float, float]]) -> None:
        """Replace tokens and time of a name by `change(tokens, time)`.

        It gets `(inf, -inf)` for a name without a bucket.
        """
        digest = self._digest(name)
        with self._alone():
            offset, tokens, at = self._find(digest)
            BUCKET.pack_into(self.memory, offset, digest, *change(tokens, at))

    def read(self, name: str) -> tuple[float, float]:
        """Return tokens and time of a name; `(inf, -inf)` without a bucket."""
        with self._alone():
            _, tokens, at = self._find(self._digest(name))
            return tokens, at

    def close(self) -> None:
        """Unmap the memory."""
        self.memory.close()
        if self.file is not None:
            os.close(self.file)

    def _digest(self, name: str) -> bytes:
        return hashlib.blake2b(name.encode(), digest_size=DIGEST_BYTES, key=self.key).digest()

    def _find(self, digest: bytes) -> tuple[int, float, float]:
        """Return the place of a bucket and its values, or the place that a new one takes."""
        start = int.from_bytes(digest[:4], "little") % SETS * PLACES_OF_A_NAME.size
        values = PLACES_OF_A_NAME.unpack_from(self.memory, start)
        place, quiet_since = 0, inf
        for number in range(PLACES):
            owner, tokens, at = values[3 * number : 3 * number + 3]
            if owner == digest:
                return start + number * BUCKET.size, tokens, at
            used_at = -inf if owner == FREE else at
            if used_at < quiet_since:
                place, quiet_since = number, used_at
        return start + place * BUCKET.size, inf, -inf

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            is_locked = self.file is not None and self._lock_file(self.file)
            try:
                yield
            finally:
                if is_locked and self.file is not None:
                    fcntl.flock(self.file, fcntl.LOCK_UN)

    def _lock_file(self, file: int) -> bool:
        end = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(PAUSE_S)
                continue
            return True
