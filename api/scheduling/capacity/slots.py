"""Runner slots of a project: how many its connected runners have free, how many are promised."""

from __future__ import annotations

import zlib
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from api.runs.queue_class import QueueClass, has_queue_class
from api.runs.status import CLAIMED_STATES, AttemptState
from api.scheduling.capacity import quotas
from api.tables import Attempt, Run, Runner

LOCK_SPACE = 0x534C4F54
"""First key of the advisory lock under which slots of a project are counted and scheduled."""


def lock(session: Session, project_id: str) -> None:
    """Serialize the scheduling of a project until the transaction ends."""
    key = zlib.crc32(project_id.encode()) - 2**31
    session.execute(select(func.pg_advisory_xact_lock(LOCK_SPACE, key)))


def is_runner_connected(session: Session, project_id: str, *, now: datetime) -> bool:
    """Return True when a runner with a valid lease accepts attempts of the project."""
    live = select(Runner.id).where(*_is_live(project_id, now)).limit(1)
    return session.scalar(live) is not None


def num_free_slots(session: Session, project_id: str, *, now: datetime) -> int:
    """Return how many slots of connected runners no claimed attempt occupies.

    Scheduled attempts are not subtracted: see `num_scheduled`.
    """
    num_claimed = (
        select(func.count())
        .select_from(Attempt)
        .where(Attempt.runner_id == Runner.id, Attempt.state.in_(CLAIMED_STATES))
        .correlate(Runner)
        .scalar_subquery()
    )
    # A runner that came back with fewer slots may have more attempts than slots.
    free = func.greatest(0, Runner.slots - num_claimed)
    query = select(func.coalesce(func.sum(free), 0)).where(*_is_live(project_id, now))
    return session.scalar(query) or 0


def num_scheduled(session: Session, project_id: str) -> int:
    """Return how many attempts are scheduled for runners and not claimed yet."""
    query = (
        select(func.count())
        .select_from(Attempt)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state == AttemptState.SCHEDULED.value, Run.project_id == project_id)
        .where(has_queue_class(QueueClass.RUNNER))
    )
    return session.scalar(query) or 0


def num_startable(session: Session, project_id: str, *, now: datetime) -> int:
    """Return how many waiting runs could get a slot now: free, not promised, within the quota."""
    free = num_free_slots(session, project_id, now=now) - num_scheduled(session, project_id)
    return min(free, quotas.num_startable(session, project_id)) if free > 0 else 0


def with_runners(session: Session, *, now: datetime) -> set[str]:
    """Return the projects of which a connected runner accepts attempts."""
    live = (Runner.lease_until > now, Runner.draining.is_(False))
    return set(session.scalars(select(Runner.project_id).where(*live).distinct()))


def _is_live(project_id: str, now: datetime) -> tuple[ColumnElement[bool], ...]:
    return (Runner.project_id == project_id, Runner.lease_until > now, Runner.draining.is_(False))
