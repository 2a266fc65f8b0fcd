"""Drives one run: take its lease, act without a session, write back under the epoch.

May be called twice, or by two workers at once: one gets the lease, a late write-back under an old
epoch is dropped, and a step that is not due changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime

from sqlalchemy.orm import Session

from api.runs.advance import advance
from api.runs.errors import LeaseLost
from api.runs.journal import utc_now
from api.runs.leases import Lease, claim_lease, hold, release
from api.runs.status import AttemptState
from api.tables import Run
from trainer.stores.base import StoreError
from worker import relay
from worker.parts import Parts

log = logging.getLogger(__name__)

MAX_STEPS = 4
"""A lost trainer is settled, recovered and offered again in one call; no run needs more."""

Clock = Callable[[], datetime]


def reconcile(
    parts: Parts, run_id: str, *, must_be_due: bool = False, clock: Clock = utc_now
) -> bool:
    """Take every step the run needs now; False when someone else holds it or nothing is to do."""
    with parts.database.transaction() as session:
        lease = claim_lease(
            session, run_id, owner=parts.owner, now=clock(), must_be_due=must_be_due
        )
    if lease is None:
        return False
    _act(parts, lease)
    return _apply(parts, lease, clock=clock)


def _act(parts: Parts, lease: Lease) -> None:
    """Fetch what a dead attempt's trainer wrote and could not send."""
    attempt = lease.attempt
    if attempt is None or attempt.state is not AttemptState.ENDED:
        return
    if attempt.final_trainer_seq is None or attempt.last_trainer_seq < attempt.final_trainer_seq:
        try:
            relay.bring_home(parts, lease.run_id, attempt.number, after=attempt.last_trainer_seq)
        except StoreError as error:
            log.warning("the tail of %s cannot be fetched now: %s", lease.run_id, error)


def _apply(parts: Parts, lease: Lease, *, clock: Clock) -> bool:
    try:
        with parts.database.transaction() as session:
            run = hold(session, lease)
            release(run, due_at=_advance_fully(session, run, now=clock()))
    except LeaseLost as error:
        log.info("dropped what was found out: %s", error)
        return False
    return True


def _advance_fully(session: Session, run: Run, *, now: datetime) -> datetime:
    """Step until the status stays; returns when to look again."""
    for _ in range(MAX_STEPS):
        before = run.status
        again_at = advance(session, run, now=now)
        if run.status == before:
            break
    return again_at
