"""Runs that are due and for which there is nothing to do: put off together, many in one statement.

What is left out of here is only work that would have found nothing: each condition is the same as
in `api.runs.advance` and `api.runs.queue`, a test holds them against each other, and a run that is
not put off is looked at by itself.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Select, func, or_, select, update
from sqlalchemy.orm import Session

from api.clusters import store as clusters
from api.runs.leases import is_due
from api.runs.runners import LEASE_S
from api.runs.status import LOOK_AGAIN_S, TERMINAL, WAITING, AttemptState, RunStatus
from api.runs.store import waits_far
from api.tables import Attempt, Run, Runner

AT_WORK = tuple(s.value for s in RunStatus if s not in TERMINAL | WAITING | {RunStatus.PAUSED})


def put_off(session: Session, *, now: datetime) -> int:
    """Put off what is at work and well, and what waits far back; returns how many runs."""
    num_well = _put_off(session, _well(now), now=now)
    return num_well + sum(
        _put_off(session, _far_back(session, project_id, now), now=now)
        for project_id in _waiting_projects(session, now)
    )


def _put_off(session: Session, which: Select[str], *, now: datetime) -> int:
    """Give runs another due time; those that somebody works on just now are skipped."""
    free = which.where(is_due(now)).with_for_update(of=Run, skip_locked=True, key_share=True)
    ids = session.scalars(free).all()
    if not ids:
        return 0
    later = now + timedelta(seconds=LOOK_AGAIN_S)
    session.execute(
        update(Run)
        .where(Run.id.in_(ids))
        .values(due_at=later, updated_at=Run.updated_at)
        .execution_options(synchronize_session=False)
    )
    return len(ids)


def _well(now: datetime) -> Select[str]:
    """Runs whose newest attempt goes on, in time, held by somebody who is heard."""
    return (
        select(Run.id)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .outerjoin(Runner, Runner.id == Attempt.runner_id)
        .where(Run.status.in_(AT_WORK), Attempt.state != AttemptState.ENDED.value)
        .where(or_(Run.deadline_at.is_(None), Run.deadline_at > now))
        .where(or_(Attempt.state == AttemptState.OFFERED.value, _is_held(now)))
    )


def _is_held(now: datetime) -> ColumnElement[bool]:
    """The opposite of `advance.runner_is_gone`."""
    limit = now - timedelta(seconds=LEASE_S)
    return or_(
        Attempt.runner_id.is_(None),
        Attempt.last_event_at > limit,
        Attempt.last_held_at >= limit,
        Attempt.last_held_at.is_(None) & (Runner.lease_until >= now),
    )


def _waiting_projects(session: Session, now: datetime) -> list[str]:
    query = select(Run.project_id).where(waits_far(now=now), is_due(now)).distinct()
    return list(session.scalars(query))


def _far_back(session: Session, project_id: str, now: datetime) -> Select[str]:
    """Runs that never asked for a cluster, behind as many as could get one now."""
    waiting = select(Run.id, func.row_number().over(order_by=_TURNS).label("place"))
    waiting = waiting.where(Run.project_id == project_id, waits_far(now=now))
    queue = waiting.subquery()
    behind = select(queue.c.id).where(queue.c.place > clusters.num_free(session, project_id))
    return select(Run.id).where(Run.id.in_(behind), Run.attempt == Run.resumed_after)


_TURNS = (Run.status.desc(), Run.created_at, Run.id)
"""Those that recover first (`recovering` after `queued` in the alphabet), then the older one."""
