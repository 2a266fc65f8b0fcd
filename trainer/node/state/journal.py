"""The node's journal on its disk, from which a restarted node process resumes.

It has no token and no secret: those are in the trainer's environment while it runs.
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

from hillclimb.protocol.launch import EndReport
from trainer.node.errors import NodeRunning

log = logging.getLogger(__name__)

RECORD_FILE = "notes.json"


class NodeRecord(BaseModel):
    """State of one attempt on one machine."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    nonce: str
    """Identifies the job to the service: a repeated claim with it is accepted."""
    machine: str = ""
    """Host name of the machine: machines may share a home."""
    launched: bool = False
    """Set just before the trainer is started: from then on there may be a process."""
    stop_sent: bool = False
    """Set just before the trainer is asked to stop: a second SIGTERM would end it at once."""
    end: EndReport | None = None
    """Set when the trainer has exited."""
    is_reported: bool = False
    """True once the service has the end report."""


class NodeJournal:
    """One small file, replaced atomically; on a full disk the record stays in memory only."""

    def __init__(self, folder: Path, nonce: str) -> None:
        """Load or create the record. Raises NodeRunning where it is another machine's."""
        self._file = folder / RECORD_FILE
        machine, stored = socket.gethostname(), _load(self._file)
        self.record = stored or NodeRecord(nonce=nonce, machine=machine)
        if self.record.machine not in ("", machine):
            raise NodeRunning(f"the machine {self.record.machine} has this attempt")
        if stored is None:
            self.update()

    def update(self, **changes: object) -> None:
        """Store changes; in memory also where writing to disk fails."""
        self.record = self.record.model_copy(update=changes)
        fresh = self._file.with_suffix(".tmp")
        try:
            with fresh.open("w") as out:
                out.write(self.record.model_dump_json())
                out.flush()
                os.fsync(out.fileno())
            fresh.replace(self._file)
        except OSError as error:
            log.warning("%s is only in memory: %s", self._file, error)


def belongs_to_job(folder: Path, nonce: str) -> bool:
    """Return True where the record in a folder is of the job with this nonce."""
    record = _load(folder / RECORD_FILE)
    return record is not None and record.nonce == nonce


def _load(file: Path) -> NodeRecord | None:
    try:
        return NodeRecord.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError:
        log.warning("%s is invalid and is ignored", file)
        return None


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Lock the attempt on this machine for the process's life. Raises NodeRunning."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NodeRunning(f"another job has this attempt in {folder}") from error
        yield
