"""Stop requests: the first stops after a checkpoint, the second at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from trainer.errors import AttemptSuperseded, TrainerError

EXIT_AT_ONCE = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class StopRequested(Exception):
    """A stop was requested: the trainer saves a checkpoint and exits."""


class StopSignal:
    """A stop request, and a way to cancel work once it arrives."""

    def __init__(self) -> None:
        self._requested = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: TrainerError | None = None
        self._is_supervised = False
        self._listens = False
        self._defers = False
        self._is_due = False
        """A signal came while `defers` held it back."""
        self._is_interrupted = False
        """A signal came within `interrupts`."""
        self.is_superseded = False

    def listen(self, *, is_supervised: bool = False) -> None:
        """Handle SIGTERM and SIGINT as stop requests; the second signal ends the process at once.

        With `is_supervised` a second signal is ignored: the end of a cluster's job may signal each
        of its processes, and the node signals its trainer too. The node kills a late trainer.
        """
        self._is_supervised = is_supervised
        self._listens = True
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    @contextmanager
    def interrupts(self) -> Iterator[None]:
        """Let a signal raise StopRequested in the block, which keeps the event loop from running.

        A start imports libraries and waits for workers: without this, a stop would wait for its
        end. The loop gets the signal as well, so a library that swallows the exception only delays
        the stop to the next `check`. Only the first signal raises: it must not cut a clean-up off.
        What fails after it fails because of the stop: a library may raise another exception from
        ours, and a signal to the whole group ends the start's other processes.

        Raises:
            StopRequested: a stop was requested before the block, or in it.
        """
        self.check()
        if not self._listens:
            yield
            return
        self._is_interrupted = False
        previous = {number: signal.signal(number, self._interrupt) for number in _SIGNALS}
        try:
            yield
        except Exception as failure:
            if self._is_interrupted and not isinstance(failure, StopRequested):
                _log.info("the start failed as it was stopped: %s", failure)
                raise StopRequested from failure
            raise
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    @contextmanager
    def defers(self) -> Iterator[None]:
        """Hold back within `interrupts` what must be done whole, such as writing an event.

        Raises:
            StopRequested: a signal came in the block; raised at its end.
        """
        self._defers = True
        try:
            yield
        finally:
            self._defers = False
        if self._is_due:
            self._is_due = False
            raise StopRequested

    def request_stop(self) -> None:
        """Request a stop; call it from the event loop's thread."""
        self._requested.set()

    def fail(self, failure: TrainerError) -> None:
        """Request a stop that ends the run with `failure`; call it from the event loop's thread."""
        self._failure = self._failure or failure
        self._requested.set()

    def fence(self) -> None:
        """Record that a newer attempt owns the run, and stop; call it from any thread."""
        self.is_superseded = True
        self._loop.call_soon_threadsafe(self._requested.set)

    def check(self) -> None:
        """Raise if a stop was requested.

        Raises:
            AttemptSuperseded: a newer attempt owns the run.
            TrainerError: the failure passed to `fail`.
            StopRequested: any other stop.
        """
        self.check_superseded()
        if self._failure is not None:
            raise self._failure
        if self._requested.is_set():
            raise StopRequested

    def check_superseded(self) -> None:
        """Raise AttemptSuperseded if a newer attempt owns the run; call it from any thread."""
        if self.is_superseded:
            raise AttemptSuperseded("a newer attempt owns the run")

    async def race(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of `work`, or cancel it when a stop is requested.

        Raises:
            AttemptSuperseded, TrainerError, StopRequested: as `check`.
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

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._is_interrupted = True
        for number in _SIGNALS:
            signal.signal(number, lambda *_: None)
        if self._defers:
            self._is_due = True
            return
        raise StopRequested

    def _on_signal(self, number: signal.Signals) -> None:
        if self._requested.is_set():
            if self._is_supervised:
                return
            os._exit(EXIT_AT_ONCE)
        _log.warning(
            "%s: stopping after a checkpoint; a second signal ends the process at once", number.name
        )
        self.request_stop()
