"""The time that the caller leaves: an environment that tries again stays within it.

Whoever bounds an operation of an environment says so with `within`; what the environment does on
the way there, however deep, asks `remaining_s`. Inner bounds never reach beyond outer ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ENDS: ContextVar[float] = ContextVar("ends", default=math.inf)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Leave what is in the block at most `seconds`, and no more than is left already."""
    token = _ENDS.set(min(_ENDS.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS.reset(token)


def remaining_s() -> float:
    """Return the seconds left; infinite where nobody set a bound, negative where it has passed."""
    return _ENDS.get() - time.monotonic()
