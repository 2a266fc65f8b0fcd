"""Ends what has no live owner and mends what nobody would look at again.

The driver deals with a run's newest attempt. What is left: attempts that are neither the newest
nor ended, runs that fell off the sweep, keys and codes whose time is over.
"""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, CursorResult, Select, delete, or_, select, update
from sqlalchemy.orm import Session

from api.clusters.quotes import KEPT
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.journal import utc_now
from api.runs.reasons import REASONS
from api.runs.status import TERMINAL, AttemptState, RunStatus
from api.tables import Attempt, Base, IdempotencyKey, PriceQuote, Run, Runner, SessionCode
from trainer.contract.reasons import ReasonCode
from worker.parts import Parts

log = logging.getLogger(__name__)

KEY_LIFE = timedelta(hours=24)
RUNNER_LIFE = timedelta(days=7)
"""A silent runner that never held an attempt is forgotten after this."""
AT_ONCE = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """What one sweep did."""

    num_attempts: int
    num_runs: int
    num_keys: int
    num_codes: int
    num_runners: int
    num_quotes: int = 0

    def __bool__(self) -> bool:
        return any(astuple(self))


def sweep(parts: Parts, *, now: datetime | None = None) -> Reaped:
    """Do one round; each kind in a transaction of its own."""
    now = now or utc_now()
    reaped = Reaped(
        num_attempts=_end_orphans(parts, now=now),
        num_runs=_wake_forgotten(parts, now=now),
        num_keys=_forget(parts, IdempotencyKey.created_at < now - KEY_LIFE, IdempotencyKey),
        num_codes=_forget(parts, SessionCode.expires_at < now, SessionCode),
        num_runners=_forget_runners(parts, now=now),
        num_quotes=_forget(parts, PriceQuote.asked_at < now - KEPT, PriceQuote),
    )
    if reaped:
        log.info("reaped: %s", reaped)
    return reaped


def _end_orphans(parts: Parts, *, now: datetime) -> int:
    """End attempts whose run has ended or goes on in a newer one; the runner then kills them."""
    with parts.database.transaction() as session:
        found = session.execute(_orphans()).all()
    for attempt_id, run_id in found:
        with parts.database.transaction() as session:
            _end_orphan(session, run_id, attempt_id, now=now)
    return len(found)


def _end_orphan(session: Session, run_id: str, attempt_id: str, *, now: datetime) -> None:
    run = store.lock_run(session, run_id)
    attempt = store.get_attempt(session, attempt_id)
    if attempt.number == run.attempt and RunStatus(run.status) not in TERMINAL:
        return
    reason = ReasonCode.ATTEMPT_SUPERSEDED
    end = End(reason=reason, message=REASONS[reason].wording)
    attempts.end_attempt(session, run, attempt, end, now=now)


def _orphans() -> Select[str, str]:
    ended = [status.value for status in TERMINAL]
    return (
        select(Attempt.id, Attempt.run_id)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state != AttemptState.ENDED.value)
        .where(or_(Attempt.number < Run.attempt, Run.status.in_(ended)))
        .limit(AT_ONCE)
    )


def _wake_forgotten(parts: Parts, *, now: datetime) -> int:
    """Give a due time to runs that are under way and have none: no sweep would see them."""
    still = [s.value for s in TERMINAL | {RunStatus.PAUSED}]
    lost = update(Run).where(Run.due_at.is_(None), Run.status.not_in(still)).values(due_at=now)
    with parts.database.transaction() as session:
        return _count(session.execute(lost))


def _forget(parts: Parts, is_old: ColumnElement[bool], table: type[Base]) -> int:
    with parts.database.transaction() as session:
        return _count(session.execute(delete(table).where(is_old)))


def _forget_runners(parts: Parts, *, now: datetime) -> int:
    known = select(Attempt.runner_id).where(Attempt.runner_id.is_not(None))
    unused = Runner.id.not_in(known.scalar_subquery())
    return _forget(parts, (Runner.lease_until < now - RUNNER_LIFE) & unused, Runner)


def _count(result: object) -> int:
    assert isinstance(result, CursorResult)
    return result.rowcount
