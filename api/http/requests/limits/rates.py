"""Rate limits: a bucket of requests per key, in each API process."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.tables.access.errors import RateExceeded
from api.tables.access.identity import Principal

MAX_BUCKETS = 10_000
"""Callers that are remembered; the one that was quiet for longest is forgotten first."""
BURST_S = 10.0
"""A quiet key may send the requests of this many seconds at once."""


@dataclass(slots=True)
class Bucket:
    """Requests that a key may still send at once."""

    tokens: float
    at: float


@dataclass(slots=True, kw_only=True)
class Rates:
    """The buckets of one API process."""

    per_minute: int
    clock: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, caller: Principal) -> None:
        """Take one request from the caller's bucket; raises RateExceeded when it is empty."""
        per_s = self.per_minute / 60
        size = max(1.0, per_s * BURST_S)
        name = caller.limited_as
        with self._lock:
            now = self.clock()
            bucket = self._buckets.setdefault(name, Bucket(size, now))
            self._buckets.move_to_end(name)
            if len(self._buckets) > MAX_BUCKETS:
                self._buckets.popitem(last=False)
            bucket.tokens = min(size, bucket.tokens + (now - bucket.at) * per_s)
            bucket.at = now
            if bucket.tokens >= 1:
                bucket.tokens -= 1
                return
            wait_s = (1 - bucket.tokens) / per_s
        raise RateExceeded(
            f"This key may send {self.per_minute} requests per minute: wait {math.ceil(wait_s)} s.",
            retry_after_s=wait_s,
        )
