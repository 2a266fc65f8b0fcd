"""Leases of runs: a row lease with an epoch, claimed before acting and checked on writing.

The worker's order is: `claim_lease` (short transaction), act without a session, `hold` (short
transaction: locks the run, unless another worker has claimed it since), apply, `release`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, case, func, or_, select
from sqlalchemy.orm import Session

from api.runs.deadlines import RUN_LEASE_S
from api.runs.errors import LeaseLost
from api.runs.queue_class import is_waiting
from api.runs.status import AttemptState, RunStatus
from api.runs.store import newest_attempt
from api.tables import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSnapshot:
    """The newest attempt at the time of the claim."""

    id: str
    number: int
    state: AttemptState
    last_trainer_seq: int
    final_trainer_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act on a run until `until`, with a snapshot of the run at the claim."""

    run_id: str
    epoch: int
    owner: str
    until: datetime
    status: RunStatus
    attempt: AttemptSnapshot | None
    """Null before the first attempt."""


def claim_lease(
    session: Session,
    run_id: str,
    *,
    owner: str,
    now: datetime,
    ttl_s: float = RUN_LEASE_S,
    must_be_due: bool = False,
) -> Lease | None:
    """Claim the run's lease; null when the run is deleted, has nothing to do, or is leased.

    Never waits: skips a row that another transaction locks. A task that was enqueued for a run
    claims it before it is due too; one that the sweep sent twice does not (`must_be_due`).
    """
    claimable = is_due(now) if must_be_due else Run.due_at.is_not(None) & _is_free(now)
    run = session.scalar(
        select(Run)
        .where(Run.id == run_id, claimable)
        .with_for_update(skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    )
    if run is None:
        return None
    run.epoch += 1
    run.lease_owner = owner
    run.lease_until = until = now + timedelta(seconds=ttl_s)
    return Lease(
        run_id=run.id,
        epoch=run.epoch,
        owner=owner,
        until=until,
        status=RunStatus(run.status),
        attempt=_snapshot(session, run),
    )


def hold(session: Session, lease: Lease) -> Run:
    """Return the run, locked and fresh, for writing; raises LeaseLost under a newer epoch."""
    run = session.scalar(
        select(Run)
        .where(Run.id == lease.run_id, Run.epoch == lease.epoch)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    if run is None:
        raise LeaseLost(f"The lease {lease.epoch} of run {lease.run_id} is over.")
    return run


def release(run: Run, *, due_at: datetime) -> None:
    """Release the lease of a run; the sweep checks the run again at `due_at`.

    A run with nothing left to do (ended, paused) keeps `due_at` null.
    """
    run.lease_owner = None
    run.lease_until = None
    if run.due_at is not None:
        run.due_at = due_at


def due_runs(session: Session, *, now: datetime, limit: int = 100) -> Sequence[str]:
    """Return ids of runs that are due now, in turn from each project.

    Those of a project come in the order of the time since when they are due, runs at work before
    waiting ones: however many runs one project has, the first of another is among the first.
    """
    waits = case((is_waiting(), 1), else_=0)
    turn = func.row_number().over(partition_by=Run.project_id, order_by=(waits, Run.due_at, Run.id))
    due = select(Run.id, Run.due_at, turn.label("turn")).where(is_due(now)).subquery()
    query = select(due.c.id).order_by(due.c.turn, due.c.due_at, due.c.id)
    return session.scalars(query.limit(limit)).all()


def is_due(now: datetime) -> ColumnElement[bool]:
    """A condition on `Run`: it is due and not leased."""
    return (Run.due_at <= now) & _is_free(now)


def _is_free(now: datetime) -> ColumnElement[bool]:
    return or_(Run.lease_until.is_(None), Run.lease_until < now)


def _snapshot(session: Session, run: Run) -> AttemptSnapshot | None:
    attempt = newest_attempt(session, run)
    if attempt is None:
        return None
    return AttemptSnapshot(
        id=attempt.id,
        number=attempt.number,
        state=AttemptState(attempt.state),
        last_trainer_seq=attempt.last_trainer_seq,
        final_trainer_seq=attempt.final_trainer_seq,
    )
