"""Virtual time for rollouts: a wait takes no time, and a busy machine makes no deadline pass.

Where nothing is ready, the event loop's clock jumps to its next timer. `time.monotonic` follows, so
deadlines, charges and delays of a test are exact.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable

import pytest

TICK_S = 1e-6
"""Passes at every turn of the loop: a timer may be a rounding error away from what it waits for."""


class VirtualClock:
    """A monotonic clock that only waits and `advance` move (seconds)."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


class _JumpingSelector(selectors.DefaultSelector):
    """Advances the clock where another selector would wait for a timer."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0 if timeout else timeout)
        self.clock.advance(TICK_S if ready or not timeout else max(timeout, TICK_S))
        return ready


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._virtual = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._virtual.monotonic()


_clock = VirtualClock()


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"virtual time": lambda: _VirtualLoop(_clock)}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    monkeypatch.setattr(time, "monotonic", _clock.monotonic)
    return _clock
