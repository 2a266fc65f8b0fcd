"""Who may work on a run: a row lease with an epoch, taken before acting and checked on writing.

The worker's order is: `claim_lease` (short transaction), act without a session, `hold` (short
transaction: the run, locked, only if nobody took over), apply, `release`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.orm import Session

from api.runs.errors import LeaseLost
from api.runs.status import AttemptState, RunStatus
from api.runs.store import newest_attempt
from api.tables import Run

LEASE_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptSnapshot:
    """The newest attempt when the lease was taken."""

    id: str
    number: int
    state: AttemptState
    last_trainer_seq: int
    final_trainer_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to act on a run until `until`, and what the run looked like when it was given."""

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
    ttl_s: float = LEASE_S,
    must_be_due: bool = False,
) -> Lease | None:
    """Take the run's lease; null when the run is gone, has nothing to do, or is held by someone.

    Never waits: a row that another transaction holds is skipped. A run that is not due is looked
    at too when somebody rang for it, but not when the sweep sent for it twice (`must_be_due`).
    """
    asked = is_due(now) if must_be_due else Run.due_at.is_not(None) & _is_free(now)
    run = session.scalar(
        select(Run)
        .where(Run.id == run_id, asked)
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
    """Give up the lease of a held run; the sweep looks again at `due_at`.

    A run with nothing left to do (ended, paused) keeps `due_at` null.
    """
    run.lease_owner = None
    run.lease_until = None
    if run.due_at is not None:
        run.due_at = due_at


def due_runs(session: Session, *, now: datetime, limit: int = 100) -> Sequence[str]:
    """Return ids of runs that need a look now, the longest waiting first."""
    return session.scalars(
        select(Run.id).where(is_due(now)).order_by(Run.due_at, Run.id).limit(limit)
    ).all()


def is_due(now: datetime) -> ColumnElement[bool]:
    """A condition on `Run`: its time has come, and nobody works on it."""
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
