"""Trying again: with growing, random pauses, while a fault may pass, for a bounded time."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

T = TypeVar("T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a fault is waited out.

    One request may be under way when the time is over: it ends with its own timeouts.
    """

    total_s: float = 120.0
    """No try begins later than this after the first."""
    first_pause_s: float = 0.2
    """Doubled after each try."""
    longest_pause_s: float = 10.0
    silence_s: float = 30.0
    """Longest wait for the next byte of an answer."""

    def persist(
        self,
        attempt: Callable[[int], T],
        *,
        faults: tuple[type[Exception], ...],
        passes: Callable[[Exception], bool],
    ) -> T:
        """Return what `attempt(number)` returns; the number counts from 0.

        Only `faults` are caught. One that does not pass, or the last one, is raised as it is.
        """
        deadline = time.monotonic() + self.total_s
        for number in count():
            try:
                return attempt(number)
            except faults as fault:
                pause = self._pause(number)
                if not passes(fault) or time.monotonic() + pause > deadline:
                    raise
                _log.info("trying again in %.1f s: %s", pause, fault)
            time.sleep(pause)
        raise AssertionError

    def _pause(self, number: int) -> float:
        longest = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(number, 30))
        return longest * random.uniform(0.5, 1.0)
