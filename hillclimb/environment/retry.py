"""Retries with exponential back-off and jitter: the one implementation that all callers share.

A caller decides which faults are retried and until when, with the function `pause_s`; the loops
here count the attempts and wait. The stores of blobs, the clients of Fleet and the teacher's
endpoint use them.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

T = TypeVar("T")
F = TypeVar("F", bound=Exception)
_RNG = random.Random()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExponentialBackoff:
    """Pauses that double with each attempt, less up to half of them by jitter."""

    first_s: float
    longest_s: float

    def pause_s(self, number: int, rng: random.Random = _RNG) -> float:
        """Return the pause after attempt `number`, counted from 0 (seconds)."""
        longest = min(self.longest_s, self.first_s * 2.0 ** min(number, 30))
        return longest * rng.uniform(0.5, 1.0)


def retry(
    attempt: Callable[[int], T],
    *,
    faults: type[F] | tuple[type[F], ...],
    pause_s: Callable[[F, int], float | None],
) -> T:
    """Return the result of `attempt(number)`; numbers count from 0.

    Only `faults` are caught. `pause_s(fault, number)` returns the seconds to wait before the next
    attempt, or None to raise the fault.
    """
    for number in count():
        try:
            return attempt(number)
        except faults as fault:
            pause = pause_s(fault, number)
            if pause is None:
                raise
        time.sleep(pause)
    raise AssertionError


async def retry_async(
    attempt: Callable[[int], Awaitable[T]],
    *,
    faults: type[F] | tuple[type[F], ...],
    pause_s: Callable[[F, int], float | None],
) -> T:
    """As `retry`, for coroutines."""
    for number in count():
        try:
            return await attempt(number)
        except faults as fault:
            pause = pause_s(fault, number)
            if pause is None:
                raise
        await asyncio.sleep(pause)
    raise AssertionError
