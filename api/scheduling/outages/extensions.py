"""Extends leases and deadlines that passed during an outage of the service itself.

Trainers continue through an outage of the control plane. After it, no heartbeat is newer than the
leases and deadlines, and the first check would end every attempt.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from api.clusters.store import ClusterState, uses_blob_channel
from api.runs.deadlines import RUNNER_LEASE_S, UNREACHABLE_MARK_INTERVAL
from api.runs.status import CLAIMED_STATES, AttemptState
from api.runs.transitions import set_deadline
from api.scheduling.limits.guards.stuck import restart_clock
from api.scheduling.outages.deferral import ACTIVE
from api.tables import Attempt, Cluster, Run, Runner


def renew_runner_leases(session: Session, *, now: datetime) -> None:
    """Renew the lease of every runner with an attempt: no API process received its heartbeats.

    Called when an API process starts. Otherwise an outage longer than the lease would end healthy
    trainers before the next heartbeat of their runners.
    """
    holders = select(Attempt.runner_id).where(Attempt.state.in_(CLAIMED_STATES))
    runners = (
        select(Runner)
        .where(Runner.id.in_(holders))
        .order_by(Runner.id)
        .with_for_update(key_share=True)
    )
    for runner in session.scalars(runners):
        runner.lease_until = max(runner.lease_until, now + timedelta(seconds=RUNNER_LEASE_S))
    # A worker is renewing the locked ones: two that renew must not wait for each other.
    claimed = select(Attempt).where(Attempt.state.in_(CLAIMED_STATES)).order_by(Attempt.id)
    for attempt in session.scalars(claimed.with_for_update(skip_locked=True, key_share=True)):
        attempt.last_held_at = now


def extend_leases_while_api_down(session: Session, *, now: datetime) -> int:
    """Extend leases and deadlines; return the number of runs.

    Called before each sweep while no API process runs. Leases and deadlines are extended when half
    a lease is left of them, so that few rows are written however long the API is down, and none
    expires. For a cluster only the deadline is extended: the time of its node's last heartbeat must
    stay true. An attempt that is to be killed, or whose trainer has ended, gets no more time.
    """
    lease = timedelta(seconds=RUNNER_LEASE_S)
    is_late = Run.deadline_at < now + lease / 2
    is_alive = Attempt.kill_requested_at.is_(None) & Attempt.trainer_code.is_(None)
    is_silent = Attempt.runner_id.is_not(None) & (Attempt.last_held_at < now - lease / 2)
    may_be_well = is_alive & ~uses_blob_channel()
    late = (
        select(Run, Attempt)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Attempt.state.in_(CLAIMED_STATES))
        .where(is_silent | (is_late & (Attempt.runner_id.is_not(None) | may_be_well)))
        .order_by(Attempt.id)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(late).all()
    for run, attempt in rows:
        if attempt.runner_id is not None:
            attempt.last_held_at = now
        if run.deadline_at is not None:
            run.deadline_at = max(run.deadline_at, now + lease)
    return len(rows)


def extend_deadlines_while_store_down(session: Session, *, now: datetime) -> int:
    """Extend deadlines of runs whose nodes use the blob channel; return the number of runs.

    Called while the blob store cannot be read; otherwise as `extend_leases_while_api_down`.
    """
    lease = timedelta(seconds=RUNNER_LEASE_S)
    late = (
        select(Run)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Attempt.state.in_(CLAIMED_STATES), uses_blob_channel())
        .where(Attempt.kill_requested_at.is_(None), Attempt.trainer_code.is_(None))
        .where(Run.deadline_at < now + lease / 2)
        .order_by(Run.id)
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    runs = session.scalars(late).all()
    for run in runs:
        run.deadline_at = now + lease
        run.stuck_at = max(run.stuck_at, now + lease) if run.stuck_at is not None else None
    return len(runs)


def mark_api_unreachable(session: Session, *, now: datetime) -> int:
    """Mark running clusters whose nodes have no API process to claim their attempt from.

    Called before a sweep while no API process runs, and after an outage of the workers, in which
    the API may have been down as well. Returns the number of clusters marked now.
    """
    query = (
        select(Cluster.id)
        .join(Attempt, Attempt.id == Cluster.attempt_id)
        .join(Run, Run.id == Cluster.run_id)
        .where(Cluster.state == ClusterState.RUNNING.value, ~uses_blob_channel())
        .where(Attempt.state == AttemptState.SCHEDULED.value)
        .where(
            or_(
                Cluster.api_unreachable_at.is_(None),
                Cluster.api_unreachable_at < now - UNREACHABLE_MARK_INTERVAL,
            )
        )
        .with_for_update(of=Cluster, skip_locked=True, key_share=True)
    )
    ids = session.scalars(query).all()
    if ids:
        mark = update(Cluster).where(Cluster.id.in_(ids)).values(api_unreachable_at=now)
        session.execute(mark.execution_options(synchronize_session=False))
    return len(ids)


def reset_deadlines(session: Session, *, now: datetime) -> int:
    """Restart the deadlines of active runs; return their number.

    Called before the first sweep after an outage of the workers; idempotent. An attempt that is to
    be killed, or whose trainer has ended, gets no more time.
    """
    unchecked = (
        select(Run, Attempt)
        .join(Attempt, (Attempt.run_id == Run.id) & (Attempt.number == Run.attempt))
        .where(Run.status.in_(ACTIVE))
        .where(Attempt.state.in_(CLAIMED_STATES))
        .where(Attempt.kill_requested_at.is_(None), Attempt.trainer_code.is_(None))
        .with_for_update(of=Run, skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    rows = session.execute(unchecked).all()
    for run, attempt in rows:
        set_deadline(run, now=now)
        restart_clock(session, run, now=now)
        run.due_at = now
        if attempt.runner_id is not None:
            attempt.last_held_at = now
    return len(rows)
