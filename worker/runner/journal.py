"""The runner's journal on disk: after a restart every trainer and every report is known."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from hillclimb.protocol.launch import EndReport

log = logging.getLogger(__name__)


class ClaimedAttempt(BaseModel):
    """One attempt, from its claim until the service has its end report."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt_id: str
    run_id: str
    attempt: int
    launched: bool = False
    """Set just before the trainer is started: from then on there may be a process."""
    stop_sent: bool = False
    """Set just before the trainer is asked to stop: a second SIGTERM would end it at once."""
    end: EndReport | None = None
    """Set when the trainer has exited; kept until the service has it."""


class RunnerJournal:
    """One small file per claimed attempt, replaced atomically.

    On a full disk an entry stays in memory only: its report is still sent.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[str, ClaimedAttempt] = {}

    def load(self) -> None:
        """Load the entries of an earlier runner."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in sorted(self._folder.glob("*.json")):
            try:
                entry = ClaimedAttempt.model_validate_json(file.read_bytes())
            except ValidationError:
                log.warning("invalid journal entry %s is ignored", file)
                continue
            self._entries[entry.attempt_id] = entry

    def all(self) -> tuple[ClaimedAttempt, ...]:
        """Return every entry."""
        return tuple(self._entries.values())

    def get(self, attempt_id: str) -> ClaimedAttempt | None:
        """Return an attempt's entry, or None."""
        return self._entries.get(attempt_id)

    def put(self, entry: ClaimedAttempt) -> None:
        """Store an entry, in memory always. Raises OSError when writing to disk fails."""
        self._entries[entry.attempt_id] = entry
        file = self._file(entry.attempt_id)
        fresh = file.with_suffix(".tmp")
        with fresh.open("w") as out:
            out.write(entry.model_dump_json())
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)

    def remove(self, attempt_id: str) -> None:
        """Delete the entry of an attempt whose end the service has."""
        self._entries.pop(attempt_id, None)
        self._file(attempt_id).unlink(missing_ok=True)

    def _file(self, attempt_id: str) -> Path:
        return self._folder / f"{attempt_id}.json"
