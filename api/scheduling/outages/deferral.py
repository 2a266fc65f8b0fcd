"""Defers due runs that need no action, many in one statement.

Runs that wait for a runner are deferred behind the free slots, and made due when one becomes free.
Each condition equals one of `api.scheduling.advance` or `api.scheduling.queue`, and a test compares
them: a deferred run is one whose check would change nothing. Every other run is checked by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs import store
from api.runs.deadlines import QUEUE_RECHECK_S, RECHECK_S, RUNNER_LEASE_S
from api.runs.leases import is_due
from api.runs.queue_class import QueueClass, has_queue_class, is_waiting
from api.runs.status import TERMINAL, WAITING, AttemptState, RunStatus
from api.runs.store import waits_for_cluster
from api.scheduling.capacity import slots
from api.tables import Attempt, Run, Runner

ACTIVE = tuple(s.value for s in RunStatus if s not in TERMINAL | WAITING | {RunStatus.PAUSED})


def defer_idle(session: Session, *, now: datetime) -> int:
    """Defer healthy active runs, and those far back in the queue; return their number."""
    num_healthy = _defer(session, _healthy(now), now=now)
    return (
        num_healthy
        + sum(
            _defer(session, _far_back(session, project_id, now), now=now)
            for project_id in _waiting_projects(session, now)
        )
        + _defer_behind_slots(session, now=now)
    )


def wake_next(session: Session, *, now: datetime) -> None:
    """Make the runs due whose turn has come: as many of each project as could get a slot now."""
    for project_id in slots.with_runners(session, now=now):
        num = slots.num_startable(session, project_id, now=now)
        if num == 0:
            continue
        asleep = select(Run.id).where(_is_in_queue(project_id)).order_by(*store.QUEUE_ORDER)
        turn = select(Run.id).where(Run.id.in_(asleep.limit(num)), Run.due_at > now)
        free = turn.with_for_update(of=Run, skip_locked=True, key_share=True)
        _set_due(session, session.scalars(free).all(), now)


def _defer_behind_slots(session: Session, *, now: datetime) -> int:
    """Defer the due runs behind as many as could get a slot now; return their number."""
    waiting = has_queue_class(QueueClass.RUNNER) & is_waiting()
    projects = session.scalars(select(Run.project_id).where(waiting, is_due(now)).distinct()).all()
    num_deferred = 0
    for project_id in projects:
        num = slots.num_startable(session, project_id, now=now)
        first = select(Run.id).where(_is_in_queue(project_id)).order_by(*store.QUEUE_ORDER)
        behind = select(Run.id).where(_is_in_queue(project_id), Run.id.not_in(first.limit(num)))
        num_deferred += _defer(session, behind, now=now, seconds=QUEUE_RECHECK_S)
    return num_deferred


def _is_in_queue(project_id: str) -> ColumnElement[bool]:
    in_queue: ColumnElement[bool] = Run.project_id == project_id
    return in_queue & has_queue_class(QueueClass.RUNNER) & is_waiting()


def _defer(
    session: Session, which: Select[str], *, now: datetime, seconds: float = RECHECK_S
) -> int:
    """Set a later due time; skips runs that another process has locked or leased."""
    free = which.where(is_due(now)).with_for_update(of=Run, skip_locked=True, key_share=True)
    ids = session.scalars(free).all()
    _set_due(session, ids, now + timedelta(seconds=seconds))
    return len(ids)


def _set_due(session: Session, ids: Sequence[str], due_at: datetime) -> None:
    if not ids:
        return
    session.execute(
        update(Run)
        .where(Run.id.in_(ids))
        .values(due_at=due_at, updated_at=Run.updated_at)
        .execution_options(synchronize_session=False)
    )


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
    waiting = select(Run.id, func.row_number().over(order_by=store.QUEUE_ORDER).label("place"))
    waiting = waiting.where(Run.project_id == project_id, waits_for_cluster(now=now))
    queue = waiting.subquery()
    behind = select(queue.c.id).where(queue.c.place > clusters.num_free(session, project_id))
    return select(Run.id).where(Run.id.in_(behind), Run.attempt == Run.resumed_after)
