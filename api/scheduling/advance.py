"""Advances a run by one step, on the database alone: by its status, deadline and runner.

The worker calls it under a lease, after it has fetched the events available in the blob store.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.runs import store
from api.runs.deadlines import KILL_GRACE_S, RECHECK_S, RUNNER_LEASE_S
from api.runs.end_reasons import OVERDUE, REASONS
from api.runs.queue_class import QueueClass, queue_class_of
from api.runs.status import TERMINAL, WAITING, AttemptState, RunStatus
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.scheduling.finalize import finalize_attempt
from api.scheduling.limits.spending import watch as watch_budget
from api.scheduling.outages import sweep_mark
from api.scheduling.provisioning import backoff_until
from api.tables import Attempt, Run, Runner
from hillclimb.protocol.end_reasons import ReasonCode


def advance(session: Session, run: Run, *, now: datetime) -> datetime:
    """Take the step that is due, if any, and return when to check the run again.

    The run is locked. Idempotent at one `now`.
    """
    status = RunStatus(run.status)
    if status in WAITING and queue_class_of(run) is QueueClass.CLUSTER:
        return _wait_for_cluster(session, run, now=now)
    if status in WAITING:
        attempts.schedule(session, run, now=now)
    elif status not in TERMINAL and status is not RunStatus.PAUSED:
        attempt = store.newest_attempt(session, run)
        if attempt is not None:
            _watch(session, run, attempt, now=now)
    return now + timedelta(seconds=RECHECK_S)


def _wait_for_cluster(session: Session, run: Run, *, now: datetime) -> datetime:
    """Schedule an attempt on a cluster if allowed, and return when to check the run again."""
    soon = now + timedelta(seconds=RECHECK_S)
    if watch_budget(session, run, now=now):
        return soon
    if attempts.schedule(session, run, now=now) is None and RunStatus(run.status) in WAITING:
        return max(soon, backoff_until(session, run, now=now) or soon)
    return soon


def is_runner_lost(session: Session, attempt: Attempt, *, now: datetime) -> bool:
    """Return True when the runner of a claimed attempt has lost it.

    Either its heartbeats stopped, or they have not listed the attempt for a lease; and its trainer
    is silent too (a trainer survives its unreachable runner). `last_held_at` decides alone, because
    it is extended while no API process receives heartbeats (`api.scheduling.outages.extensions`).
    """
    if attempt.runner_id is None:
        return False
    limit = now - timedelta(seconds=RUNNER_LEASE_S)
    if attempt.last_event_at is not None and attempt.last_event_at > limit:
        return False
    if attempt.last_held_at is not None:
        return attempt.last_held_at < limit
    return session.get_one(Runner, attempt.runner_id).lease_until < now


def _watch(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    if attempt.state == AttemptState.ENDED.value:
        finalize_attempt(session, run, attempt, now=now)
        return
    is_claimed = attempt.state != AttemptState.SCHEDULED.value
    is_lost = is_claimed and is_runner_lost(session, attempt, now=now)
    is_late = run.deadline_at is not None and run.deadline_at <= now
    if not (is_lost or is_late) or sweep_mark.is_stale(session, now=now):
        return
    if is_lost:
        _close(session, run, attempt, ReasonCode.RUNNER_LOST, now=now)
    else:
        _overdue(session, run, attempt, now=now)


def _overdue(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    """End an attempt past its deadline; a trainer that may be alive is killed first."""
    may_be_alive = attempt.state != AttemptState.SCHEDULED.value and attempt.trainer_code is None
    if may_be_alive and attempt.kill_requested_at is None:
        attempts.request_stop(attempt, now=now, kill=True)
        run.deadline_at = now + timedelta(seconds=KILL_GRACE_S)
        return
    _close(session, run, attempt, overdue_reason(run), now=now)


def overdue_reason(run: Run) -> ReasonCode:
    """Return the end reason of an attempt whose run's status exceeded its deadline."""
    status = RunStatus(run.status)
    if status is RunStatus.PROVISIONING and queue_class_of(run) is QueueClass.CLUSTER:
        return ReasonCode.PROVISION_TIMEOUT
    return OVERDUE[status]


def _close(
    session: Session, run: Run, attempt: Attempt, reason: ReasonCode, *, now: datetime
) -> None:
    end = AttemptEnd(reason=reason, message=REASONS[reason].wording)
    attempts.end_attempt(session, run, attempt, end, now=now)
