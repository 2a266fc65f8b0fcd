"""What the runner holds, on disk: a restart forgets no trainer and no report."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.contract.launch import AttemptEnd

log = logging.getLogger(__name__)


class HeldAttempt(BaseModel):
    """One attempt from its claim to the service's receipt of its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    attempt_id: str
    run_id: str
    attempt: int
    light: bool = False
    """It takes no slot."""
    launched: bool = False
    """Set just before the trainer is started: from then on there may be a process."""
    stop_sent: bool = False
    """Set just before the trainer is asked to stop: a second SIGTERM would end it at once."""
    end: AttemptEnd | None = None
    """Set when the trainer is gone; kept until the service has it."""


class Journal:
    """One small file per attempt held, replaced as a whole.

    When the disk is full the record lives on in memory: the report still goes out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, HeldAttempt] = {}

    def load(self) -> None:
        """Read what an earlier runner left."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in sorted(self._folder.glob("*.json")):
            try:
                held = HeldAttempt.model_validate_json(file.read_bytes())
            except ValidationError:
                log.warning("unreadable journal entry %s is left alone", file)
                continue
            self._held[held.attempt_id] = held

    def all(self) -> tuple[HeldAttempt, ...]:
        """Everything held."""
        return tuple(self._held.values())

    def get(self, attempt_id: str) -> HeldAttempt | None:
        """One attempt, or None."""
        return self._held.get(attempt_id)

    def put(self, held: HeldAttempt) -> None:
        """Remember `held`, in memory always. Raises OSError when the disk does not take it."""
        self._held[held.attempt_id] = held
        file = self._file(held.attempt_id)
        fresh = file.with_suffix(".tmp")
        with fresh.open("w") as out:
            out.write(held.model_dump_json())
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)

    def remove(self, attempt_id: str) -> None:
        """Forget an attempt whose end the service has."""
        self._held.pop(attempt_id, None)
        self._file(attempt_id).unlink(missing_ok=True)

    def _file(self, attempt_id: str) -> Path:
        return self._folder / f"{attempt_id}.json"
