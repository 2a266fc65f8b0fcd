"""Puts into the blob store what a dead trainer wrote but did not mirror."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from trainer.contract.rundir import AttemptDir, event_segment, log_segment, run_key
from trainer.handover.ending import trainer_seq, whole_lines
from trainer.handover.masking import Mask
from trainer.stores.base import BlobStore, StoreError
from trainer.stores.locate import open_store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TailMirror:
    """Adds one last segment of events and one of the log, each only if something is missing.

    What `mask` knows stays here; it keeps lengths, so what is mirrored can be counted in bytes.
    """

    store: BlobStore
    mask: Mask = field(default_factory=Mask)

    @classmethod
    def at(cls, url: str, mask: Mask) -> TailMirror:
        """The mirror into the store at `url`: a directory or `s3://BUCKET/PREFIX`."""
        return cls(open_store(url), mask)

    def complete(self, run_id: str, where: AttemptDir) -> None:
        """Mirror the rest of an attempt; a store that fails is logged, never raised.

        The run directory still has everything, and the service's deadline speaks if events
        stay away.
        """
        try:
            self._events(run_id, where)
            self._log(run_id, where)
        except (StoreError, OSError) as error:
            log.warning("the tail of %s %s is not mirrored: %s", run_id, where.path.name, error)

    def _events(self, run_id: str, where: AttemptDir) -> None:
        segments = self._segments(run_id, event_segment(where.attempt, 1))
        last = 0
        if segments:
            mirrored = self.store.get(segments[-1]).splitlines()
            last = max((trainer_seq(line) or 0 for line in mirrored), default=0)
        missing = [line for line in whole_lines(where.events) if (trainer_seq(line) or 0) > last]
        if missing:
            key = run_key(run_id, event_segment(where.attempt, _number(segments) + 1))
            self.store.put_if_absent(key, b"".join(map(self.mask.json_line, missing)))

    def _log(self, run_id: str, where: AttemptDir) -> None:
        segments = self._segments(run_id, log_segment(where.attempt, 1))
        mirrored = sum(map(self.store.size, segments))
        with where.log.open("rb") as file:
            file.seek(mirrored)
            rest = file.read()
        if rest:
            key = run_key(run_id, log_segment(where.attempt, _number(segments) + 1))
            self.store.put_if_absent(key, self.mask.raw(rest))

    def _segments(self, run_id: str, first: str) -> tuple[str, ...]:
        return self.store.list(run_key(run_id, first.rpartition("/")[0]))


def _number(segments: tuple[str, ...]) -> int:
    """The number of the last segment; 0 when there is none."""
    return int(segments[-1].rpartition("/")[2].partition(".")[0]) if segments else 0
