"""Stop requests: the first stops after a checkpoint, the second at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

from trainer.errors import AttemptSuperseded, TrainerError

EXIT_AT_ONCE = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class StopRequested(Exception):
    """The trainer was asked to stop; it saves a checkpoint and exits."""


class StopSignal:
    """A stop request, and a way to cancel work once it arrives."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: TrainerError | None = None
        self._is_supervised = False
        self.is_superseded = False

    def listen(self, *, is_held: bool = False) -> None:
        """Take SIGTERM and SIGINT as requests; the second one ends the process at once.

        `is_held`: not the second one. Whoever ends a cluster's job may tell each of its processes,
        and the node tells its trainer too; it kills one that is late.
        """
        self._is_supervised = is_held
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    def ask(self) -> None:
        """Ask to stop; from the event loop's thread."""
        self._requested.set()

    def fail(self, failure: TrainerError) -> None:
        """Ask to stop for a reason of our own; from the event loop's thread."""
        self._failure = self._failure or failure
        self._requested.set()

    def fence(self) -> None:
        """Say that a newer attempt owns the run; from any thread."""
        self.is_superseded = True
        self._loop.call_soon_threadsafe(self._requested.set)

    def check(self) -> None:
        """Raise what was asked for, if anything.

        Raises:
            AttemptSuperseded: a newer attempt owns the run.
            StopRequested: someone asked to stop.
            TrainerError: what `fail` was given.
        """
        self.check_superseded()
        if self._failure is not None:
            raise self._failure
        if self._requested.is_set():
            raise StopRequested

    def check_superseded(self) -> None:
        """Raise when a newer attempt owns the run; from any thread.

        Raises:
            AttemptSuperseded: it does.
        """
        if self.is_superseded:
            raise AttemptSuperseded("a newer attempt owns the run")

    async def race(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of `work`, or cancel it as soon as someone asks to stop.

        Raises:
            AttemptSuperseded, StopRequested: as `check`.
        """
        working, requested = asyncio.create_task(work), asyncio.create_task(self._requested.wait())
        try:
            await asyncio.wait((working, requested), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                self.check()
            return await working
        finally:
            for task in (working, requested):
                task.cancel()
            await asyncio.gather(working, requested, return_exceptions=True)

    def _on_signal(self, number: signal.Signals) -> None:
        if self._requested.is_set():
            if self._is_supervised:
                return
            os._exit(EXIT_AT_ONCE)
        _log.warning("%s: stopping after a checkpoint; once more ends at once", number.name)
        self.ask()
