"""Rate limits: a bucket of requests per key, person or attempt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from api.http.live.serving.bucket_table import BucketTable
from api.http.requests.limits.buckets import Buckets
from api.tables.access.errors import RateExceeded
from api.tables.access.identity import Principal

BURST_S = 10.0
"""A quiet key may send the requests of this many seconds at once."""


@dataclass(slots=True, kw_only=True)
class Rates:
    """The rates of the API processes of one address."""

    per_minute: int
    table: BucketTable = field(default_factory=BucketTable.private)
    clock: Callable[[], float] = time.monotonic
    _buckets: Buckets = field(init=False)

    def __post_init__(self) -> None:
        self._buckets = Buckets(
            per_minute=self.per_minute,
            burst_s=BURST_S,
            table=self.table,
            kind="requests",
            clock=self.clock,
        )

    def count(self, caller: Principal) -> None:
        """Take one request from the caller's bucket; raises RateExceeded when it is empty."""
        self._take(caller.key_id or f"{caller.project_id}/{caller.person_id}", "key")

    def count_attempt(self, attempt_id: str) -> None:
        """Take one request from an attempt's bucket; raises RateExceeded when it is empty."""
        self._take(attempt_id, "attempt")

    def _take(self, name: str, holder: str) -> None:
        if (wait_s := self._buckets.take(name)) > 0:
            limit = f"This {holder} may send {self.per_minute} requests per minute"
            raise RateExceeded(f"{limit}: wait {math.ceil(wait_s)} s.", retry_after_s=wait_s)
