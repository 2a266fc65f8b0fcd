"""The journal of an attempt: numbered events, written to a file first, then read by the sinks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from hillclimb.protocol.events import Event, PhaseStarted, TrainerEnded
from trainer.attempt.sinks.base import Sink
from trainer.attempt.sinks.jsonl import JsonlFile


class EventJournal:
    """Numbers events and writes each one to the file before any sink sends it."""

    def __init__(self, file: JsonlFile, sinks: Sequence[Sink] = ()) -> None:
        self._file = file
        self._sinks = list(sinks)
        self._lock = threading.Lock()
        self._has_ended = False
        self.phase: str | None = None
        """The last phase that started."""

    @property
    def last_seq(self) -> int:
        """Number of the last event written."""
        return self._file.last_seq

    def add(self, sink: Sink) -> None:
        """Add a sink; it reads earlier events from the file."""
        self._sinks.append(sink)

    def emit(self, event: Event) -> None:
        """Number an event, write it and wake the sinks.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            self._write(event)

    def announce(self, event: Event) -> bool:
        """Emit an event of a sink, from its thread, unless the attempt's last event is written.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            if self._has_ended:
                return False
            self._write(event)
        return True

    def _write(self, event: Event) -> None:
        self._file.append(event.numbered(self._file.last_seq + 1, datetime.now(UTC)))
        if isinstance(event, PhaseStarted):
            self.phase = event.phase
        self._has_ended = self._has_ended or isinstance(event, TrainerEnded)
        for sink in self._sinks:
            sink.wake()

    def close(self, *, drain_s: float) -> bool:
        """Let the sinks send the remaining events, each within `drain_s`; True when all arrived.

        Raises:
            OSError: the file could not be flushed to the disk; the sinks are closed all the same.
        """
        try:
            self._end()
        finally:
            arrived = [sink.close(drain_s) for sink in self._sinks]
        return all(arrived)

    def abandon(self) -> None:
        """Close the file without the sinks: another attempt owns the run."""
        self._end()

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True
            self._file.close()
