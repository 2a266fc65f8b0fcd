"""Phases of an attempt's start: an event where each begins and, with its time, where it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hillclimb.protocol.events import Event, StartPhase, TrainerStarting


class StartupPhases:
    """Reports what a starting trainer does; phases may overlap, as those of Ray's workers do.

    A phase that fails has no end: the attempt's own end says why.
    """

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._begun: dict[StartPhase, float] = {}
        self._seconds: dict[StartPhase, float] = {}

    @property
    def seconds(self) -> dict[StartPhase, float]:
        """Seconds of each phase that has ended, in the order of their ends."""
        return dict(self._seconds)

    @contextmanager
    def phase(self, name: StartPhase) -> Iterator[None]:
        """Report the block as a phase."""
        self.begin(name)
        yield
        self.end(name)

    def begin(self, name: StartPhase) -> None:
        """Report that a phase begins."""
        self._begun[name] = time.monotonic()
        self._emit(TrainerStarting(step=0, phase=name))

    def end(self, name: StartPhase) -> None:
        """Report that a phase has ended; it must have begun."""
        seconds = round(time.monotonic() - self._begun.pop(name), 3)
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._emit(TrainerStarting(step=0, phase=name, seconds=seconds))
