"""What a node has done so far, on its disk: a process that follows a dead one goes on from there.

No token and no secret: those are in the trainer's own environment while it lives.
"""

from __future__ import annotations

import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from trainer.contract.launch import AttemptEnd
from trainer.node.errors import NodeRunning

log = logging.getLogger(__name__)

NOTES = "notes.json"


class Notes(BaseModel):
    """One attempt on one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nonce: str
    """Says to the service that it is the same job that asks again."""
    machine: str = ""
    """Whose notes they are: machines may share their home."""
    launched: bool = False
    """Set just before the trainer is started: from then on there may be a process."""
    stop_sent: bool = False
    """Set just before the trainer is asked to stop: a second SIGTERM would end it at once."""
    end: AttemptEnd | None = None
    """Set when the trainer is gone."""
    is_told: bool = False
    """Whether the service has the end."""


class NodeJournal:
    """One small file, replaced as a whole; on a full disk the notes live on in memory."""

    def __init__(self, folder: Path, nonce: str) -> None:
        """Raises NodeRunning where the notes are another machine's."""
        self._file = folder / NOTES
        machine, found = socket.gethostname(), _load(self._file)
        self.notes = found or Notes(nonce=nonce, machine=machine)
        if self.notes.machine not in ("", machine):
            raise NodeRunning(f"the machine {self.notes.machine} carries this attempt: leave")
        if found is None:
            self.note()

    def note(self, **changes: object) -> None:
        """Remember changes; also where the disk does not take them."""
        self.notes = self.notes.model_copy(update=changes)
        fresh = self._file.with_suffix(".tmp")
        try:
            with fresh.open("w") as out:
                out.write(self.notes.model_dump_json())
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(self._file)
        except OSError as error:
            log.warning("%s is only in memory: %s", self._file, error)


def is_of(folder: Path, nonce: str) -> bool:
    """Say whether the notes in a folder are those of the job with this nonce."""
    notes = _load(folder / NOTES)
    return notes is not None and notes.nonce == nonce


def _load(file: Path) -> Notes | None:
    try:
        return Notes.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        log.warning("%s is torn: it is as if nothing was done", file)
        return None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the attempt on this machine; the lock goes with the process. Raises NodeRunning."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NodeRunning(f"another job carries this attempt in {folder}: leave") from error
        yield
