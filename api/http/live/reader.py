"""Reads a run's events from the table and encodes them, once per wake-up, off the event loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

import anyio
import anyio.to_thread
from sqlalchemy import Row, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.http.live.errors import ReadFailed
from api.http.live.frames import encode
from api.http.live.hub import FrameBatch
from api.tables import Run, RunEvent
from api.tables.database import Database

PAGE = 500
"""Events per read."""
MAX_READS = 8
"""Concurrent reads: replays of many clients must leave connections for other requests."""


COLUMNS = (
    RunEvent.seq,
    RunEvent.id,
    RunEvent.type,
    RunEvent.at,
    RunEvent.run_id,
    RunEvent.attempt,
    RunEvent.actor,
    RunEvent.data,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """The `Read` of a hub: the next page of a run's events."""

    database: Database
    limiter: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MAX_READS))

    async def read(self, run_id: str, after: int) -> FrameBatch:
        """Return the events after `after`, which is at most the newest event."""
        return await anyio.to_thread.run_sync(self._read, run_id, after, limiter=self.limiter)

    def _read(self, run_id: str, after: int) -> FrameBatch:
        try:
            with self.database.transaction() as session:
                return read_batch(session, run_id, after)
        except SQLAlchemyError as error:
            raise ReadFailed(str(error)) from error


def read_batch(session: Session, run_id: str, after: int) -> FrameBatch:
    """Return up to a page of events after `after`, encoded.

    Reads the run before its events: later events may be returned too, and the end is announced
    only after the last event that the run counted.
    """
    query = select(Run.last_seq, Run.ended_at).where(Run.id == run_id)
    last_seq, ended_at = session.execute(query).one()
    after = min(after, last_seq)
    events = session.execute(
        select(*COLUMNS)
        .where(RunEvent.run_id == run_id, RunEvent.seq > after)
        .order_by(RunEvent.seq)
        .limit(PAGE)
    ).all()
    return FrameBatch(
        first=after + 1,
        events=tuple(encode(envelope(event)) for event in events),
        is_page=len(events) == PAGE,
        ended=ended_at is not None and after + len(events) >= last_seq,
    )


def envelope(event: RunEvent | Row[Any]) -> Mapping[str, object]:
    """Return the event as JSON, the same for pages, streams and the dashboard."""
    return {
        "seq": event.seq,
        "id": event.id,
        "type": event.type,
        "created_at": event.at.astimezone(UTC),
        "run_id": event.run_id,
        "attempt": event.attempt,
        "actor": event.actor,
        "data": event.data,
    }
