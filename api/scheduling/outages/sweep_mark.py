"""The mark of the last complete sweep of runs, from which an outage of the workers is known.

A run's own due time proves nothing: a long queue makes checks late while every worker is well.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import case, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.runs.deadlines import SERVICE_DOWN_S
from api.tables import Sweep

RUNS = "runs"


DOWN = timedelta(seconds=SERVICE_DOWN_S)


def last_completed_at(session: Session) -> datetime | None:
    """Return when the last complete sweep was, by the clock of its worker; null before any."""
    return session.scalar(select(Sweep.completed_at).where(Sweep.name == RUNS))


def was_down(last: datetime | None, now: datetime) -> bool:
    """Return True if no sweep was completed for long, or none ever."""
    return last is None or last < now - DOWN


def is_ahead(last: datetime | None, now: datetime) -> bool:
    """Return True if the last sweep lies in the future: the clock was set back since."""
    return last is not None and last > now + DOWN


def is_stale(session: Session, *, now: datetime) -> bool:
    """Return True where the next sweep will restart deadlines and leases before it judges them.

    After an outage, and after the clock was set; a task may come before that sweep.
    """
    last = last_completed_at(session)
    return last is not None and abs(now - last) > DOWN


def mark(session: Session, *, now: datetime) -> None:
    """Record a complete sweep; the mark goes back only after the clock was set back."""
    statement = insert(Sweep).values(name=RUNS, completed_at=now)
    new = statement.excluded.completed_at
    later = case(
        (Sweep.completed_at > new + DOWN, new), else_=func.greatest(Sweep.completed_at, new)
    )
    session.execute(
        statement.on_conflict_do_update(index_elements=["name"], set_={"completed_at": later})
    )
