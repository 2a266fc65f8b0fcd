"""The service itself was away, and no trainer is at fault for it: what ran out then is given again.

An outage of the control plane changes nothing for a trainer. When it is over, nobody has heard of
any for longer than leases and deadlines last, and the first look would end them all.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from api.clusters.store import ClusterState, speaks_by_notes
from api.runs.presence import is_api_there
from api.runs.quiet import AT_WORK
from api.runs.runners import LEASE_S
from api.runs.status import AttemptState
from api.runs.transitions import set_deadline
from api.tables import Attempt, Cluster, Run, Runner

AWAY_S = 40.0
"""A run at work whose look is so long overdue shows that nobody looked. Longer than a killed worker
keeps a run from being looked at (`api.runs.leases.LEASE_S`), and short enough that of a runner's
lease (`api.runs.runners.LEASE_S`) something is left where the outage was shorter."""
_NOTED_AGAIN = timedelta(seconds=30)
"""So often is it written down that nobody was there, however long it lasts."""
HELD = (AttemptState.CLAIMED.value, AttemptState.RUNNING.value)


def forgive_holders(session: Session, *, now: datetime) -> None:
    """Give every runner that holds an attempt a fresh lease: nobody took its heartbeats.

    Called when an API process starts. Without it, an outage longer than the lease would end
    healthy trainers before their runners could speak again.
    """
    holders = select(Attempt.runner_id).where(Attempt.state.in_(HELD))
    runners = (
        select(Runner)
        .where(Runner.id.in_(holders))
        .order_by(Runner.id)
        .with_for_update(key_share=True)
    )
    for runner in session.scalars(runners):
        runner.lease_until = max(runner.lease_until, now + timedelta(seconds=LEASE_S))
    # One that is locked is being renewed by a worker: two that renew must not wait for each other.
    held = select(Attempt).where(Attempt.state.in_(HELD)).order_by(Attempt.id)
    for attempt in session.scalars(held.with_for_update(skip_locked=True, key_share=True)):
        attempt.last_held_at = now


def hold_unheard(session: Session, *, now: datetime) -> int:
    """Renew what is held while no API process is there to hear of it; returns of how many.

    Called before each round's looks. Leases and deadlines are moved on when half a lease is left of
    them, so that few rows are written however long the API is away, and none runs out. Of a
    cluster the deadline alone is moved: when its node was last heard must stay true, and what was
    told to end, or has said its last word, gets no more time.
    """
    if is_api_there(session):
        return 0
    lease = timedelta(seconds=LEASE_S)
    is_late = Run.deadline_at < now + lease / 2
    is_left = Attempt.kill_requested_at.is_(None) & Attempt.trainer_code.is_(None)
    is_unheard = Attempt.runner_id.is_not(None) & (Attempt.last_held_at < now - lease / 2)
    may_be_well = is_left & ~speaks_by_notes()
    late = (
        select(Run, Attempt)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Attempt.state.in_(HELD))
        .where(is_unheard | (is_late & (Attempt.runner_id.is_not(None) | may_be_well)))
        .order_by(Attempt.id)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    found = session.execute(late).all()
    for run, attempt in found:
        if attempt.runner_id is not None:
            attempt.last_held_at = now
        if run.deadline_at is not None:
            run.deadline_at = max(run.deadline_at, now + lease)
    return len(found)


def hold_unread(session: Session, *, now: datetime) -> int:
    """Move on the deadlines of runs whose nodes are heard by notes alone; returns of how many.

    Called while the store in which the notes lie cannot be read; otherwise as `hold_unheard`.
    """
    lease = timedelta(seconds=LEASE_S)
    late = (
        select(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Attempt.state.in_(HELD), speaks_by_notes())
        .where(Attempt.kill_requested_at.is_(None), Attempt.trainer_code.is_(None))
        .where(Run.deadline_at < now + lease / 2)
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    found = session.scalars(late).all()
    for run in found:
        run.deadline_at = now + lease
    return len(found)


def note_shut_out(session: Session, *, now: datetime) -> int:
    """Note on clusters that are up that their nodes had nobody to take their attempt from.

    Called before each round's looks. Where nobody looked for long the API may have been away with
    the rest. Returns on how many it was noted now.
    """
    query = (
        select(Cluster.id)
        .join(Attempt, Attempt.id == Cluster.attempt_id)
        .join(Run, Run.id == Cluster.run_id)
        .where(Cluster.state == ClusterState.UP.value, ~speaks_by_notes())
        .where(Attempt.state == AttemptState.OFFERED.value)
        .where(or_(Cluster.shut_out_at.is_(None), Cluster.shut_out_at < now - _NOTED_AGAIN))
        .with_for_update(of=Cluster, skip_locked=True, key_share=True)
    )
    if is_api_there(session):
        query = query.where(Run.due_at < now - timedelta(seconds=AWAY_S))
    ids = session.scalars(query).all()
    if ids:
        noted = update(Cluster).where(Cluster.id.in_(ids)).values(shut_out_at=now)
        session.execute(noted.execution_options(synchronize_session=False))
    return len(ids)


def forgive_runs(session: Session, *, now: datetime) -> int:
    """Give trainers whose run nobody looked at for long their status's full time again.

    Called before each round's looks; a second call changes nothing. Returns how many runs. What
    was already told to end, or has said its last word, is not given more time.
    """
    unseen = (
        select(Run, Attempt)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Run.status.in_(AT_WORK), Run.due_at < now - timedelta(seconds=AWAY_S))
        .where(Attempt.state.in_(HELD))
        .where(Attempt.kill_requested_at.is_(None), Attempt.trainer_code.is_(None))
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    found = session.execute(unseen).all()
    for run, attempt in found:
        set_deadline(run, now=now)
        run.due_at = now
        if attempt.runner_id is not None:
            attempt.last_held_at = now
    return len(found)
