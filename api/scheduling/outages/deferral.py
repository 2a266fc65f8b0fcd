"""Defers due runs that need no action, many in one statement.

Each condition equals one of `api.scheduling.advance` or `api.scheduling.queue`, and a test compares
them: a deferred run is one whose check would change nothing. Every other run is checked by itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs.deadlines import RECHECK_S, RUNNER_LEASE_S
from api.runs.leases import is_due
from api.runs.status import TERMINAL, WAITING, AttemptState, RunStatus
from api.runs.store import waits_for_cluster
from api.tables import Attempt, Run, Runner

ACTIVE = tuple(s.value for s in RunStatus if s not in TERMINAL | WAITING | {RunStatus.PAUSED})


def defer_idle(session: Session, *, now: datetime) -> int:
    """Defer healthy active runs, and those far back in the queue; return their number."""
    num_healthy = _defer(session, _healthy(now), now=now)
    return num_healthy + sum(
        _defer(session, _far_back(session, project_id, now), now=now)
        for project_id in _waiting_projects(session, now)
    )


def _defer(session: Session, which: Select[str], *, now: datetime) -> int:
    """Set a later due time; skips runs that another process has locked or leased."""
    free = which.where(is_due(now)).with_for_update(of=Run, skip_locked=True, key_share=True)
    ids = session.scalars(free).all()
    if not ids:
        return 0
    later = now + timedelta(seconds=RECHECK_S)
    session.execute(
        update(Run)
        .where(Run.id.in_(ids))
        .values(due_at=later, updated_at=Run.updated_at)
        .execution_options(synchronize_session=False)
    )
    return len(ids)


def _healthy(now: datetime) -> Select[str]:
    """Runs whose newest attempt is within its deadline and has a live runner or node."""
    return (
        select(Run.id)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .outerjoin(Runner, Runner.id == Attempt.runner_id)
        .where(Run.status.in_(ACTIVE), Attempt.state != AttemptState.ENDED.value)
        .where(or_(Run.deadline_at.is_(None), Run.deadline_at > now))
        .where(or_(Attempt.state == AttemptState.SCHEDULED.value, _has_live_holder(now)))
    )


def _has_live_holder(now: datetime) -> ColumnElement[bool]:
    """The opposite of `advance.is_runner_lost`."""
    limit = now - timedelta(seconds=RUNNER_LEASE_S)
    return or_(
        Attempt.runner_id.is_(None),
        Attempt.last_event_at > limit,
        Attempt.last_held_at >= limit,
        Attempt.last_held_at.is_(None) & (Runner.lease_until >= now),
    )


def _waiting_projects(session: Session, now: datetime) -> list[str]:
    query = select(Run.project_id).where(waits_for_cluster(now=now), is_due(now)).distinct()
    return list(session.scalars(query))


def _far_back(session: Session, project_id: str, now: datetime) -> Select[str]:
    """Runs without an attempt yet, behind as many as could get a cluster now."""
    waiting = select(Run.id, func.row_number().over(order_by=_QUEUE_ORDER).label("place"))
    waiting = waiting.where(Run.project_id == project_id, waits_for_cluster(now=now))
    queue = waiting.subquery()
    behind = select(queue.c.id).where(queue.c.place > clusters.num_free(session, project_id))
    return select(Run.id).where(Run.id.in_(behind), Run.attempt == Run.resumed_after)


_QUEUE_ORDER = (Run.status.desc(), Run.created_at, Run.id)
"""Recovering runs first (`recovering` sorts after `queued`), then the older run."""
