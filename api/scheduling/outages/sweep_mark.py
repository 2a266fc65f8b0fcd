"""The mark of the last complete sweep of runs, from which an outage of the workers is known.

A run's own due time proves nothing: a long queue makes checks late while every worker is well.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.runs.deadlines import SERVICE_DOWN_S
from api.tables import Sweep

RUNS = "runs"


def was_down(session: Session, *, now: datetime) -> bool:
    """Return True if no sweep was completed for long, or none ever."""
    last = session.scalar(select(Sweep.completed_at).where(Sweep.name == RUNS))
    return last is None or last < now - timedelta(seconds=SERVICE_DOWN_S)


def mark(session: Session, *, now: datetime) -> None:
    """Record a complete sweep; the mark never goes back."""
    statement = insert(Sweep).values(name=RUNS, completed_at=now)
    later = func.greatest(Sweep.completed_at, statement.excluded.completed_at)
    session.execute(
        statement.on_conflict_do_update(index_elements=["name"], set_={"completed_at": later})
    )
