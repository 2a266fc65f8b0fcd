"""One step of a run on the database alone: what its status, deadline and runner call for now.

The worker calls it under a lease, after it has fetched what events it could from the blob store.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.clusters.asking import rests_until
from api.clusters.spending import watch as watch_budget
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.lanes import Lane, lane_of
from api.runs.reasons import OVERDUE, REASONS
from api.runs.runners import LEASE_S
from api.runs.settle import settle
from api.runs.status import LOOK_AGAIN_S, TERMINAL, WAITING, AttemptState, RunStatus
from api.tables import Attempt, Run, Runner
from trainer.contract.reasons import ReasonCode

KILL_GRACE_S = 30.0
"""Between asking a runner to kill and giving the attempt up without its report."""


def advance(session: Session, run: Run, *, now: datetime) -> datetime:
    """Take the step that is due, if any, and return when to look again.

    The run is locked. Repeating it at once changes nothing.
    """
    status = RunStatus(run.status)
    if status in WAITING and lane_of(run) is Lane.CLUSTER:
        return _wait_for_cluster(session, run, now=now)
    if status in WAITING:
        attempts.offer(session, run, now=now)
    elif status not in TERMINAL and status is not RunStatus.PAUSED:
        attempt = store.newest_attempt(session, run)
        if attempt is not None:
            _watch(session, run, attempt, now=now)
    return now + timedelta(seconds=LOOK_AGAIN_S)


def _wait_for_cluster(session: Session, run: Run, *, now: datetime) -> datetime:
    """Ask for a cluster if the run may now, and return when to look again."""
    soon = now + timedelta(seconds=LOOK_AGAIN_S)
    if watch_budget(session, run, now=now):
        return soon
    if attempts.offer(session, run, now=now) is None and RunStatus(run.status) in WAITING:
        return max(soon, rests_until(session, run, now=now) or soon)
    return soon


def runner_is_gone(session: Session, attempt: Attempt, *, now: datetime) -> bool:
    """Say whether nobody holds a claimed attempt any more.

    Its runner is silent, or lives and has not named the attempt for as long; and its trainer is
    silent too (a runner that cannot be reached is not a trainer that died). When it was last named
    decides alone, because that is renewed where nobody could hear it (`api.runs.absence`).
    """
    if attempt.runner_id is None:
        return False
    limit = now - timedelta(seconds=LEASE_S)
    if attempt.last_event_at is not None and attempt.last_event_at > limit:
        return False
    if attempt.last_held_at is not None:
        return attempt.last_held_at < limit
    return session.get_one(Runner, attempt.runner_id).lease_until < now


def _watch(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    if attempt.state == AttemptState.ENDED.value:
        settle(session, run, attempt, now=now)
    elif attempt.state != AttemptState.OFFERED.value and runner_is_gone(session, attempt, now=now):
        _close(session, run, attempt, ReasonCode.RUNNER_LOST, now=now)
    elif run.deadline_at is not None and run.deadline_at <= now:
        _overdue(session, run, attempt, now=now)


def _overdue(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    """End what lasted too long; a trainer that may still live is killed first."""
    may_live = attempt.state != AttemptState.OFFERED.value and attempt.trainer_code is None
    if may_live and attempt.kill_requested_at is None:
        attempts.request_stop(attempt, now=now, kill=True)
        run.deadline_at = now + timedelta(seconds=KILL_GRACE_S)
        return
    _close(session, run, attempt, overdue_reason(run), now=now)


def overdue_reason(run: Run) -> ReasonCode:
    """Return the reason of an attempt that is ended because its run's status lasted too long."""
    status = RunStatus(run.status)
    if status is RunStatus.PROVISIONING and lane_of(run) is Lane.CLUSTER:
        return ReasonCode.PROVISION_TIMEOUT
    return OVERDUE[status]


def _close(
    session: Session, run: Run, attempt: Attempt, reason: ReasonCode, *, now: datetime
) -> None:
    end = End(reason=reason, message=REASONS[reason].wording)
    attempts.end_attempt(session, run, attempt, end, now=now)
