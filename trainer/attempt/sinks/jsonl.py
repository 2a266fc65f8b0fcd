"""The event file (`events.jsonl`): the primary record of an attempt's events."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hillclimb.process.redactor import Redactor
from hillclimb.protocol.events import EVENTS, Event


class JsonlFile:
    """Appends events to a file, one per line, unbuffered: a failed write leaves nothing behind.

    In the file of an earlier process of the same attempt, numbering continues after the last
    complete line; a partial line at the end (the process was killed while writing) is cut off.
    `mask` redacts secrets before they are written, so no sink can send them.
    """

    def __init__(self, path: Path, mask: Redactor | None = None) -> None:
        self._mask = mask or Redactor()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.last_seq = _complete(path)
        self._handle = path.open("ab", buffering=0)
        self._end = self._handle.tell()

    def append(self, event: Event) -> None:
        """Write one event whole, or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        line = self._mask.json_line(EVENTS.dump_json(event) + b"\n")
        try:
            written = 0
            while written < len(line):
                written += self._handle.write(line[written:])
        except OSError:
            with suppress(OSError):
                self._handle.truncate(self._end)
            raise
        self._end += len(line)
        self.last_seq = event.trainer_seq

    def close(self) -> None:
        """Flush to the disk and close."""
        os.fsync(self._handle.fileno())
        self._handle.close()


def _complete(path: Path) -> int:
    """Cut off a partial last line and return the number of the last event, 0 for none."""
    if not path.exists():
        return 0
    with path.open("r+b") as handle:
        last, end = b"", 0
        for line in handle:
            if not line.endswith(b"\n"):
                break
            last, end = line, end + len(line)
        handle.truncate(end)
    return EVENTS.validate_json(last).trainer_seq if last else 0
