"""Attempts whose tokens the database knew a moment ago.

The gate needs an attempt's id to count its requests, and the token looked at before the body is
read. It asks the database once in a while, not for each request of a trainer: every route of
attempts looks the token up again, in the transaction in which it acts.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.scheduling.attempts import hash_token

RECENT_S = 10.0
MAX_RECENT = 10_000


@dataclass(slots=True, kw_only=True)
class RecentAttempts:
    """Ids of attempts by the digests of their tokens, for `RECENT_S`."""

    clock: Callable[[], float] = time.monotonic
    _attempts: OrderedDict[str, tuple[str, float]] = field(default_factory=OrderedDict)
    """Id and time (s), the oldest first."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, token: str) -> str | None:
        """Return the id of the attempt that had the token a moment ago; null to ask again."""
        with self._lock:
            attempt_id, at = self._attempts.get(hash_token(token), (None, 0.0))
        return attempt_id if self.clock() - at < RECENT_S else None

    def note(self, token: str, attempt_id: str) -> None:
        """Note that the database knows the token now."""
        with self._lock:
            digest = hash_token(token)
            self._attempts[digest] = (attempt_id, self.clock())
            self._attempts.move_to_end(digest)
            if len(self._attempts) > MAX_RECENT:
                self._attempts.popitem(last=False)
