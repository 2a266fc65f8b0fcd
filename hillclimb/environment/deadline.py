"""Deadlines of operations, within which an environment retries.

A caller bounds an operation with `within`; the environment reads `remaining_s` at any depth below.
An inner deadline never extends an outer one.
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
    """Bound the block by `seconds`, and by the outer deadline."""
    token = _ENDS.set(min(_ENDS.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _ENDS.reset(token)


def remaining_s() -> float:
    """Return the remaining seconds; infinite without a deadline, negative after it."""
    return _ENDS.get() - time.monotonic()
