"""Ends orphaned attempts, makes forgotten runs due again, and deletes expired rows.

The driver handles a run's newest attempt only. The reaper handles older attempts that have not
ended, runs without a due time, and expired keys, codes, runners and quotes.
"""

from __future__ import annotations

import logging
from dataclasses import astuple, dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, CursorResult, Select, delete, or_, select, update
from sqlalchemy.orm import Session

from api.notices.slack.inbox import RETENTION
from api.runs import store
from api.runs.deadlines import QUOTE_TTL
from api.runs.end_reasons import REASONS
from api.runs.journal import utc_now
from api.runs.status import TERMINAL, AttemptState, RunStatus
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import (
    Attempt,
    Base,
    EndedSession,
    IdempotencyKey,
    PriceQuote,
    Run,
    Runner,
    SessionCode,
    SlackLinkCode,
    SlackRequest,
)
from hillclimb.protocol.end_reasons import ReasonCode
from worker.context import WorkerContext
from worker.deadlines import IDEMPOTENCY_KEY_TTL, IDLE_RUNNER_TTL

log = logging.getLogger(__name__)

BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaped:
    """Counts of one sweep."""

    num_attempts: int
    num_runs: int
    num_keys: int
    num_codes: int
    num_sessions: int
    num_slack_requests: int
    num_runners: int
    num_quotes: int = 0

    def __bool__(self) -> bool:
        return any(astuple(self))


def sweep(context: WorkerContext, *, now: datetime | None = None) -> Reaped:
    """Sweep once; each kind of row in a transaction of its own."""
    now = now or utc_now()
    reaped = Reaped(
        num_attempts=_end_orphans(context, now=now),
        num_runs=_make_due(context, now=now),
        num_keys=_delete(
            context, IdempotencyKey.created_at < now - IDEMPOTENCY_KEY_TTL, IdempotencyKey
        ),
        num_codes=_delete(context, SessionCode.expires_at < now, SessionCode)
        + _delete(context, SlackLinkCode.expires_at < now, SlackLinkCode),
        num_sessions=_delete(context, EndedSession.expires_at < now, EndedSession),
        num_slack_requests=_delete(
            context, SlackRequest.created_at < now - RETENTION, SlackRequest
        ),
        num_runners=_delete_runners(context, now=now),
        num_quotes=_delete(context, PriceQuote.asked_at < now - QUOTE_TTL, PriceQuote),
    )
    if reaped:
        log.info("reaped: %s", reaped)
    return reaped


def _end_orphans(context: WorkerContext, *, now: datetime) -> int:
    """End attempts whose run has ended or has a newer attempt; their runners then kill them."""
    with context.database.transaction() as session:
        orphans = session.execute(_orphans()).all()
    for attempt_id, run_id in orphans:
        with context.database.transaction() as session:
            _end_orphan(session, run_id, attempt_id, now=now)
    return len(orphans)


def _end_orphan(session: Session, run_id: str, attempt_id: str, *, now: datetime) -> None:
    run = store.lock_run(session, run_id)
    attempt = store.get_attempt(session, attempt_id)
    if attempt.number == run.attempt and RunStatus(run.status) not in TERMINAL:
        return
    reason = ReasonCode.ATTEMPT_SUPERSEDED
    end = AttemptEnd(reason=reason, message=REASONS[reason].wording)
    attempts.end_attempt(session, run, attempt, end, now=now)


def _orphans() -> Select[str, str]:
    ended = [status.value for status in TERMINAL]
    return (
        select(Attempt.id, Attempt.run_id)
        .join(Run, Run.id == Attempt.run_id)
        .where(Attempt.state != AttemptState.ENDED.value)
        .where(or_(Attempt.number < Run.attempt, Run.status.in_(ended)))
        .limit(BATCH)
    )


def _make_due(context: WorkerContext, *, now: datetime) -> int:
    """Give a due time to active runs that have none: no sweep would find them."""
    inactive = [s.value for s in TERMINAL | {RunStatus.PAUSED}]
    statement = (
        update(Run).where(Run.due_at.is_(None), Run.status.not_in(inactive)).values(due_at=now)
    )
    with context.database.transaction() as session:
        return _count(session.execute(statement))


def _delete(context: WorkerContext, is_old: ColumnElement[bool], table: type[Base]) -> int:
    with context.database.transaction() as session:
        return _count(session.execute(delete(table).where(is_old)))


def _delete_runners(context: WorkerContext, *, now: datetime) -> int:
    used = select(Attempt.runner_id).where(Attempt.runner_id.is_not(None))
    unused = Runner.id.not_in(used.scalar_subquery())
    return _delete(context, (Runner.lease_until < now - IDLE_RUNNER_TTL) & unused, Runner)


def _count(result: object) -> int:
    assert isinstance(result, CursorResult)
    return result.rowcount
