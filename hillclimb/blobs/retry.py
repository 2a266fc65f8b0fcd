"""Retries of a blob store's requests, bounded in time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from hillclimb.environment.retry import ExponentialBackoff, retry

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries transient faults for `total_s`, with back-off.

    A request in flight when the time is over ends by its own timeouts.
    """

    total_s: float = 120.0
    """No attempt starts later than this after the first."""
    first_pause_s: float = 0.2
    """Doubled after each attempt."""
    longest_pause_s: float = 10.0
    silence_s: float = 30.0
    """Read timeout: longest wait for the next byte of a response."""

    def call(
        self,
        attempt: Callable[[int], T],
        *,
        faults: tuple[type[Exception], ...],
        is_transient: Callable[[Exception], bool],
    ) -> T:
        """Return the result of `attempt(number)`; numbers count from 0.

        Only `faults` are caught. One that is not transient, or the last one, is raised as it is.
        """
        backoff = ExponentialBackoff(first_s=self.first_pause_s, longest_s=self.longest_pause_s)
        deadline = time.monotonic() + self.total_s

        def pause_s(fault: Exception, number: int) -> float | None:
            pause = backoff.pause_s(number)
            if not is_transient(fault) or time.monotonic() + pause > deadline:
                return None
            _log.info("retrying in %.1f s: %s", pause, fault)
            return pause

        return retry(attempt, faults=faults, pause_s=pause_s)
