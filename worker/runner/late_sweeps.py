"""Further sweeps of ended attempts: a platform may carry out their creations afterwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from hillclimb.process.sweep import LATE_S

log = logging.getLogger(__name__)
RETRY_S = 60.0
"""Pause after a sweep that failed."""
GIVE_UP_S = 3600.0
"""How long after an attempt's end failing sweeps are repeated: instances have expired by then."""


class EndedAttempt(BaseModel):
    """An attempt that is still to be swept, and when it ended (seconds since the epoch)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt_id: str
    run_id: str
    attempt: int
    ended_at: float
    num_done: int = 0
    """Sweeps that succeeded, of those at `LATE_S`."""


Sweep = Callable[[EndedAttempt], bool]


@dataclass(slots=True)
class LateSweeps:
    """Sweeps that are due, each in the one thread that is for them; a restart loses none.

    `sweep` returns False where some instances may be left; `forget` is called after the last sweep
    of an attempt.
    """

    folder: Path
    sweep: Sweep
    forget: Callable[[str], None]
    clock: Callable[[], float] = time.time
    _entries: dict[str, EndedAttempt] = field(default_factory=dict)
    _not_before: dict[str, float] = field(default_factory=dict)
    _running: dict[str, Future[bool]] = field(default_factory=dict)
    _pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    def load(self) -> None:
        """Load the entries of an earlier runner."""
        for file in sorted(self.folder.glob("*.json")):
            try:
                entry = EndedAttempt.model_validate_json(file.read_bytes())
            except (OSError, ValidationError):
                log.warning("invalid entry %s is ignored", file)
                continue
            self._entries[entry.attempt_id] = entry

    def add(self, attempt_id: str, run_id: str, attempt: int) -> None:
        """Note an attempt that has ended now; on a full disk it is in memory only."""
        entry = EndedAttempt(
            attempt_id=attempt_id, run_id=run_id, attempt=attempt, ended_at=self.clock()
        )
        self._put(entry)

    def __contains__(self, attempt_id: str) -> bool:
        """Tell whether an attempt is still to be swept."""
        return attempt_id in self._entries

    def run_ids(self) -> set[str]:
        """Return the runs of which an attempt is still to be swept."""
        return {entry.run_id for entry in self._entries.values()}

    def poll(self) -> None:
        """Begin the sweeps that are due, and take note of those that are done."""
        for attempt_id, running in list(self._running.items()):
            if running.done():
                del self._running[attempt_id]
                self._finish(self._entries[attempt_id], succeeded=running.result())
        now = self.clock()
        for attempt_id, entry in list(self._entries.items()):
            if entry.ended_at > now:
                # A clock that was set back must not put a sweep off for years.
                self._put(entry.model_copy(update={"ended_at": now}))
                self._not_before.pop(attempt_id, None)
            elif attempt_id not in self._running and now >= self._due_at(entry):
                self._running[attempt_id] = self._pool.submit(self.sweep, entry)

    def close(self) -> None:
        """Begin no further sweep; those that are left are the next runner's."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due_at(self, entry: EndedAttempt) -> float:
        due = entry.ended_at + LATE_S[entry.num_done]
        return max(due, self._not_before.get(entry.attempt_id, 0.0))

    def _finish(self, entry: EndedAttempt, *, succeeded: bool) -> None:
        age = self.clock() - entry.ended_at
        if succeeded:
            entry = entry.model_copy(update={"num_done": entry.num_done + 1})
        else:
            self._not_before[entry.attempt_id] = self.clock() + RETRY_S
        if entry.num_done < len(LATE_S) and (succeeded or age < GIVE_UP_S):
            self._put(entry)
            return
        if not succeeded:
            log.warning("attempt %s is not swept any more", entry.attempt_id)
        del self._entries[entry.attempt_id]
        self._not_before.pop(entry.attempt_id, None)
        self._file(entry.attempt_id).unlink(missing_ok=True)
        self.forget(entry.attempt_id)

    def _put(self, entry: EndedAttempt) -> None:
        self._entries[entry.attempt_id] = entry
        file = self._file(entry.attempt_id)
        fresh = file.with_suffix(".tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fresh.write_text(entry.model_dump_json())
            fresh.replace(file)
        except OSError as error:
            log.warning("further sweeps of %s are only in memory: %s", entry.attempt_id, error)

    def _file(self, attempt_id: str) -> Path:
        return self.folder / f"{attempt_id}.json"
