"""Mirrors events and logs to the blob store as numbered segments.

The relay reads them when pushes do not reach the service, and for the tail of a dead attempt.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hillclimb.blobs.base import BlobStore
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.rundir import AttemptDir, event_segment, log_segment, run_key
from trainer.attempt.sinks.tail import Tail

INTERVAL_S = 3.0
MAX_BYTES = 4_000_000
MAX_LINES = 100_000
POSITIONS = "segments.json"
"""In the attempt's directory: the position in each file from which a restart continues."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Mirrored:
    """A file that is mirrored, and the number of its next segment."""

    tail: Tail
    key: Callable[[int], str]
    mask: Redactor
    number: int = 1


class Segments:
    """Copies new lines of events and log every few seconds, from a thread of its own.

    If the process dies between storing a segment and recording its position, the segment is stored
    again under its number with at least the same lines, so readers see each line once, in order.
    `mask` redacts the log here. Events are redacted when they are written, which keeps them JSON.
    """

    def __init__(
        self,
        store: BlobStore,
        attempt_dir: AttemptDir,
        mask: Redactor | None = None,
        *,
        interval_s: float = INTERVAL_S,
    ) -> None:
        run_id, attempt = attempt_dir.run_dir.name, attempt_dir.attempt
        self._store = store
        self._interval_s = interval_s
        self._positions: Path = attempt_dir.path / POSITIONS
        self._files = {
            "events": _Mirrored(
                Tail(attempt_dir.events),
                lambda n: run_key(run_id, event_segment(attempt, n)),
                Redactor(),
            ),
            "log": _Mirrored(
                Tail(attempt_dir.log),
                lambda n: run_key(run_id, log_segment(attempt, n)),
                mask or Redactor(),
            ),
        }
        self._restore()
        self._complaint = ""
        self._news = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="segments", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Do nothing: the thread polls, so that segments do not become tiny."""

    def close(self, timeout_s: float) -> bool:
        """Mirror the remaining lines within `timeout_s` and stop; True if the store has all."""
        deadline = time.monotonic() + timeout_s
        self._closing.set()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive() and not self._complaint

    def _work(self) -> None:
        while not self._closing.wait(self._interval_s):
            self._mirror()
        self._mirror()

    def _mirror(self) -> None:
        try:
            for mirrored in self._files.values():
                while lines := mirrored.tail.lines(max_bytes=MAX_BYTES, max_lines=MAX_LINES):
                    data = mirrored.mask.raw(b"".join(lines))
                    self._store.put(mirrored.key(mirrored.number), data)
                    mirrored.tail.advance(lines)
                    mirrored.number += 1
                    self._note()
            self._complaint = ""
        except Exception as error:  # noqa: BLE001 - the sink edge: training goes on whatever fails
            if not self._complaint:
                _log.warning("segments could not be stored (%s); retrying", error)
            self._complaint = str(error)

    def _note(self) -> None:
        positions = {
            name: {"offset": mirrored.tail.offset, "number": mirrored.number}
            for name, mirrored in self._files.items()
        }
        part = self._positions.with_suffix(".part")
        part.write_text(json.dumps(positions))
        part.replace(self._positions)

    def _restore(self) -> None:
        if not self._positions.exists():
            return
        try:
            positions = json.loads(self._positions.read_text())
            restored = {
                name: (positions[name]["offset"], positions[name]["number"]) for name in self._files
            }
        except (ValueError, KeyError, TypeError) as error:
            _log.warning("%s is invalid (%s); mirroring from the start", self._positions, error)
            return
        for name, (offset, number) in restored.items():
            self._files[name].tail.offset, self._files[name].number = offset, number
