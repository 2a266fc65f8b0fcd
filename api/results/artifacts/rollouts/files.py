"""Streams stored rollouts: outcomes from the table, trajectories from their files, in their order.

A file is fetched once per evaluation and read line by line, so that memory does not grow with it.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from api.results.artifacts.trajectories import TrajectoryFilters, outcome_facts
from api.results.evals.store import OutcomeBatch
from api.tables import OutcomeRecord
from api.tables.database import Database
from hillclimb.blobs.archive.gzip_file import TRAJECTORIES_LIMIT, GzipUnreadable, gzip_lines
from hillclimb.blobs.base import BlobMissing, BlobStore
from hillclimb.protocol.payloads.results.rollouts import RolloutPayload
from hillclimb.protocol.rundir import attempt_name, run_key

GZIP = 31
"""Window bits of `zlib` for a stream in gzip's format."""


@dataclass(slots=True)
class TrajectoryFiles:
    """Lines of trajectory files by position; keeps the last file in a folder of its own."""

    store: BlobStore
    run_id: str
    _folder: tempfile.TemporaryDirectory[str] = field(
        default_factory=lambda: tempfile.TemporaryDirectory(prefix="hillclimb-rollouts-")
    )
    _key: str = ""
    _file: BinaryIO | None = None
    _lines: Iterator[bytes] = field(default_factory=lambda: iter(()))
    _next: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()
        self._folder.cleanup()

    def line(self, outcome: OutcomeRecord) -> bytes | None:
        """Return the stored line of an outcome, without its end.

        None where its file is missing, damaged or beyond `TRAJECTORIES_LIMIT` before its end.

        Raises:
            StoreError: the store does not respond.
        """
        key = run_key(self.run_id, attempt_name(outcome.attempt), outcome.trajectory)
        try:
            if key != self._key:
                self._fetch(key)
            return None if self._file is None else self._read(outcome.trajectory_line)
        except (GzipUnreadable, OSError):
            self._close()
            return None

    def _fetch(self, key: str) -> None:
        self._close()
        self._key = key
        path = Path(self._folder.name, "file")
        try:
            self.store.get_file(key, path)
        except BlobMissing:
            return
        self._file = path.open("rb")
        self._lines, self._next = gzip_lines(self._file, TRAJECTORIES_LIMIT), 0

    def _read(self, number: int) -> bytes | None:
        assert self._file is not None
        if number < self._next:
            self._lines, self._next = gzip_lines(self._file, TRAJECTORIES_LIMIT), 0
        line = next(islice(self._lines, number - self._next, None), b"")
        self._next = number + 1
        return line.removesuffix(b"\n") if line.endswith(b"\n") else None

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def batches(
    session: Session, run_id: str, filters: TrajectoryFilters, *, pass_threshold: float
) -> list[OutcomeBatch]:
    """Return the steps, splits and decodings with outcomes that the filters let through."""
    columns = (
        OutcomeRecord.step,
        OutcomeRecord.split,
        OutcomeRecord.decoding,
        OutcomeRecord.attempt,
    )
    query = select(*columns).where(OutcomeRecord.run_id == run_id, *_conditions(filters))
    return [
        OutcomeBatch(
            run_id=run_id,
            split=split,
            decoding=decoding,
            step=step,
            attempt=attempt,
            pass_threshold=pass_threshold,
        )
        for step, split, decoding, attempt in session.execute(query.distinct().order_by(*columns))
    ]


def outcomes_of_batch(
    session: Session, batch: OutcomeBatch, filters: TrajectoryFilters
) -> list[OutcomeRecord]:
    """Return the outcomes of a batch in the order of their files and lines."""
    query = select(OutcomeRecord).where(*batch.where(), *_conditions(filters))
    order = (OutcomeRecord.trajectory, OutcomeRecord.trajectory_line, OutcomeRecord.rollout_id)
    return list(session.scalars(query.order_by(*order)))


def rollout_lines(
    database: Database,
    store: BlobStore,
    chosen: list[OutcomeBatch],
    filters: TrajectoryFilters,
) -> Iterator[bytes]:
    """Yield the rollouts as JSON lines, compressed by gzip: `{"outcome": …, "trajectory": …}`.

    The trajectory is null where its file is not in the store, or damaged.
    """
    packer = zlib.compressobj(wbits=GZIP)
    for batch in chosen:
        with database.transaction() as session:
            outcomes = outcomes_of_batch(session, batch, filters)
        with TrajectoryFiles(store, batch.run_id) as files:
            for outcome in outcomes:
                facts = outcome_facts(outcome, threshold=batch.pass_threshold)
                head = RolloutPayload.model_validate(facts).model_dump_json().encode()
                line = files.line(outcome) or b"null"
                block = packer.compress(b'{"outcome":' + head + b',"trajectory":' + line + b"}\n")
                if block:
                    yield block
    yield packer.flush()


def _conditions(filters: TrajectoryFilters) -> list[ColumnElement[bool]]:
    columns = {
        OutcomeRecord.env_key: filters.env,
        OutcomeRecord.step: filters.step,
        OutcomeRecord.split: filters.split,
        OutcomeRecord.decoding: filters.decoding,
    }
    return [column == value for column, value in columns.items() if value is not None]
