"""Uploads the tail of events and log that an exited trainer did not upload itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.blobs.locate import open_store
from hillclimb.process.exit_report import trainer_seq, whole_lines
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.rundir import AttemptDir, event_segment, log_segment, run_key

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TailUploader:
    """Adds a last segment of events and one of the log, each only if something is missing.

    Both are redacted. Redaction keeps lengths, so the uploaded part of a log is its count of bytes.
    """

    store: BlobStore
    redactor: Redactor = field(default_factory=Redactor)

    @classmethod
    def at(cls, url: str, redactor: Redactor) -> TailUploader:
        """Return an uploader into the store at `url`: a directory or `s3://BUCKET/PREFIX`."""
        return cls(open_store(url), redactor)

    def upload_tail(self, run_id: str, attempt_dir: AttemptDir) -> None:
        """Upload the rest of an attempt's events and log; a failing store is logged, never raised.

        The run directory still has everything, and the service has a deadline for missing events.
        """
        try:
            self._events(run_id, attempt_dir)
            self._log(run_id, attempt_dir)
        except (StoreError, OSError) as error:
            log.warning(
                "the tail of %s %s is not uploaded: %s", run_id, attempt_dir.path.name, error
            )

    def _events(self, run_id: str, attempt_dir: AttemptDir) -> None:
        segments = self._segments(run_id, event_segment(attempt_dir.attempt, 1))
        last = 0
        if segments:
            uploaded = self.store.get(segments[-1]).splitlines()
            last = max((trainer_seq(line) or 0 for line in uploaded), default=0)
        missing = [
            line for line in whole_lines(attempt_dir.events) if (trainer_seq(line) or 0) > last
        ]
        if missing:
            key = run_key(run_id, event_segment(attempt_dir.attempt, _number(segments) + 1))
            self.store.put_if_absent(key, b"".join(map(self.redactor.json_line, missing)))

    def _log(self, run_id: str, attempt_dir: AttemptDir) -> None:
        segments = self._segments(run_id, log_segment(attempt_dir.attempt, 1))
        num_uploaded = sum(map(self.store.size, segments))
        with attempt_dir.log.open("rb") as file:
            file.seek(num_uploaded)
            tail = file.read()
        if tail:
            key = run_key(run_id, log_segment(attempt_dir.attempt, _number(segments) + 1))
            self.store.put_if_absent(key, self.redactor.raw(tail))

    def _segments(self, run_id: str, first: str) -> tuple[str, ...]:
        return self.store.list(run_key(run_id, first.rpartition("/")[0]))


def _number(segments: tuple[str, ...]) -> int:
    """Return the number of the last segment; 0 when there is none."""
    return int(segments[-1].rpartition("/")[2].partition(".")[0]) if segments else 0
