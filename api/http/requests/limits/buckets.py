"""Token buckets by name, in the memory of one API process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

MAX_BUCKETS = 10_000
"""Names that are remembered; the one that was quiet for longest is forgotten first."""


@dataclass(slots=True)
class Bucket:
    """Tokens that a name may still take at once."""

    tokens: float
    at: float


@dataclass(slots=True, kw_only=True)
class Buckets:
    """One bucket for each name, which `per_minute` tokens a minute fill."""

    per_minute: float
    burst_s: float
    """A quiet name may use the tokens of this many seconds at once."""
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, name: str) -> float:
        """Take a token of the name; return 0, or the seconds until there is one."""
        with self._lock:
            bucket = self._filled(name)
            wait_s = self._wait_s(bucket)
            if wait_s == 0:
                bucket.tokens -= 1
            return wait_s

    def wait_s(self, name: str) -> float:
        """Return the seconds until there is a token of the name, 0 where there is one now."""
        with self._lock:
            return self._wait_s(self._filled(name)) if name in self._buckets else 0.0

    def _filled(self, name: str) -> Bucket:
        size = max(1.0, self.per_minute * self.burst_s / 60)
        now = self.clock()
        bucket = self._buckets.setdefault(name, Bucket(size, now))
        self._buckets.move_to_end(name)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.tokens = min(size, bucket.tokens + (now - bucket.at) * self.per_minute / 60)
        bucket.at = now
        return bucket

    def _wait_s(self, bucket: Bucket) -> float:
        # Sums of floats: a token that is there but for its last bits is there.
        return 0.0 if bucket.tokens >= 1 - 1e-9 else (1 - bucket.tokens) * 60 / self.per_minute
