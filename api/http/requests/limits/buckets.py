"""Token buckets by name, in the memory that the API processes of one address share."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from api.http.live.serving.bucket_table import BucketTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """One bucket for each name, which `per_minute` tokens a minute fill."""

    per_minute: float
    burst_s: float
    """A quiet name may use the tokens of this many seconds at once."""
    table: BucketTable = field(default_factory=BucketTable.private)
    kind: str = ""
    """Keeps these names apart from those of other buckets in the table."""
    clock: Callable[[], float] = time.monotonic

    def take(self, name: str) -> float:
        """Take a token of the name; return 0, or the seconds until there is one."""
        now, waits = self.clock(), [0.0]

        def change(tokens: float, at: float) -> tuple[float, float]:
            level = self._level(tokens, at, now)
            waits[0] = self._wait_s(level)
            return (level if waits[0] else level - 1), max(at, now)

        self.table.update(f"{self.kind} {name}", change)
        return waits[0]

    def wait_s(self, name: str) -> float:
        """Return the seconds until there is a token of the name, 0 where there is one now."""
        return self._wait_s(self._level(*self.table.read(f"{self.kind} {name}"), self.clock()))

    def _level(self, tokens: float, at: float, now: float) -> float:
        size = max(1.0, self.per_minute * self.burst_s / 60)
        if tokens >= size:
            return size
        # Another process may have read the clock later, and have come first.
        return min(size, tokens + max(0.0, now - at) * self.per_minute / 60)

    def _wait_s(self, level: float) -> float:
        # Sums of floats: a token that is there but for its last bits is there.
        return 0.0 if level >= 1 - 1e-9 else (1 - level) * 60 / self.per_minute
