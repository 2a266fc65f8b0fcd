"""Where the trainer says things: numbered events, written first, then carried by the sinks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from trainer.contract.events import EVENTS, Event, PhaseStarted
from trainer.sinks.base import Sink
from trainer.sinks.jsonl import JsonlFile


class Journal:
    """Numbers events and writes them down before anyone is told."""

    def __init__(self, file: JsonlFile, sinks: Sequence[Sink] = ()) -> None:
        self._file = file
        self._sinks = list(sinks)
        self.phase: str | None = None
        """The phase that was entered last."""

    @property
    def last_seq(self) -> int:
        """Number of the last event written."""
        return self._file.last_seq

    def add(self, sink: Sink) -> None:
        """Tell one more sink from now on; it finds in the file what came before."""
        self._sinks.append(sink)

    def emit(self, kind: type[Event], *, step: int, **fields: object) -> None:
        """Write an event of one kind with its fields.

        Raises:
            ValidationError: the fields do not fit the kind.
            OSError: the file cannot be written.
        """
        stamp = {"trainer_seq": self._file.last_seq + 1, "at": datetime.now(UTC), "step": step}
        tag = kind.model_fields["type"].default
        self._file.append(EVENTS.validate_python({"type": tag, **stamp, **fields}))
        if kind is PhaseStarted:
            self.phase = str(fields["phase"])
        for sink in self._sinks:
            sink.wake()

    def close(self, *, drain_s: float) -> bool:
        """Let the sinks carry the rest, each within `drain_s`; True when all of it arrived.

        Raises:
            OSError: the file could not be flushed to the disk; the sinks are closed all the same.
        """
        try:
            self._file.close()
        finally:
            arrived = [sink.close(drain_s) for sink in self._sinks]
        return all(arrived)

    def abandon(self) -> None:
        """Close the file and tell nobody: another attempt owns the run."""
        self._file.close()
