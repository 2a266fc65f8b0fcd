"""The newest event of a type: it has the results of a run that trains nothing."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.tables import RunEvent


def newest_event(session: Session, run_id: str, event_type: str) -> RunEvent | None:
    """Return the run's last event of a type: that of its newest attempt."""
    return session.scalar(
        select(RunEvent)
        .where(RunEvent.run_id == run_id, RunEvent.type == event_type)
        .order_by(RunEvent.seq.desc())
        .limit(1)
    )
