"""Reconciles one run: takes its lease, acts without a session, writes back under the epoch.

May be called twice, or by two workers at once: one gets the lease, a late write under an old epoch
is dropped, and a step that is not due changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from sqlalchemy.orm import Session

from api.runs.errors import LeaseLost
from api.runs.journal import utc_now
from api.runs.leases import Lease, claim_lease, hold, release
from api.runs.status import AttemptState
from api.scheduling.advance import advance
from api.tables import Run
from hillclimb.blobs.base import StoreError
from worker.context import WorkerContext
from worker.runs import relay

log = logging.getLogger(__name__)

MAX_STEPS = 4
"""Finalizing, recovering and scheduling a lost attempt takes this many; no run needs more."""

Clock = Callable[[], datetime]


def reconcile(
    context: WorkerContext, run_id: str, *, must_be_due: bool = False, clock: Clock = utc_now
) -> bool:
    """Take every step due for the run; False when it is leased elsewhere or not due."""
    with context.database.transaction() as session:
        lease = claim_lease(
            session, run_id, owner=context.owner, now=clock(), must_be_due=must_be_due
        )
    if lease is None:
        return False
    _act(context, lease)
    return _apply(context, lease, clock=clock)


def _act(context: WorkerContext, lease: Lease) -> None:
    """Recover the tail of events that an ended attempt's trainer could not push."""
    attempt = lease.attempt
    if attempt is None or attempt.state is not AttemptState.ENDED:
        return
    if attempt.final_trainer_seq is None or attempt.last_trainer_seq < attempt.final_trainer_seq:
        try:
            relay.recover_tail(
                context, lease.run_id, attempt.number, after=attempt.last_trainer_seq
            )
        except StoreError as error:
            log.warning("the tail of %s cannot be fetched now: %s", lease.run_id, error)


def _apply(context: WorkerContext, lease: Lease, *, clock: Clock) -> bool:
    try:
        with context.database.transaction() as session:
            run = hold(session, lease)
            release(run, due_at=_advance_fully(session, run, now=clock()))
    except LeaseLost as error:
        log.info("dropped a step's result: %s", error)
        return False
    return True


def _advance_fully(session: Session, run: Run, *, now: datetime) -> datetime:
    """Step until the status no longer changes; returns the time of the next step."""
    for _ in range(MAX_STEPS):
        before = run.status
        due_at = advance(session, run, now=now)
        if run.status == before:
            break
    return due_at
