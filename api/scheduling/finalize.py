"""Finalizes ended attempts: their run succeeds, recovers, pauses, or fails."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from api.runs import store
from api.runs.end_reasons import MAX_FAILURES, REASONS, AfterEnd, FailureCounting, status_after
from api.runs.status import TERMINAL, WAITING, AttemptState, DesiredState, RunStatus
from api.runs.transitions import move
from api.tables import Attempt, Run
from hillclimb.protocol.end_reasons import ReasonCode

SETTLED = TERMINAL | WAITING | {RunStatus.PAUSED}
"""Statuses in which the newest attempt is already finalized."""

PAUSABLE = (AfterEnd.RETRY, AfterEnd.PAUSE)
"""Ends after which a run with `desired_state` paused is paused instead."""


def finalize_attempt(session: Session, run: Run, attempt: Attempt, *, now: datetime) -> None:
    """Change the status of a run whose newest attempt ended, unless events of it are missing.

    It waits for them until its deadline (`worker.runs.relay` fetches them meanwhile), because the
    newest checkpoint may be among them.
    """
    if attempt.state != AttemptState.ENDED.value or RunStatus(run.status) in SETTLED:
        return
    if tail_missing(attempt) and run.deadline_at is not None and now < run.deadline_at:
        return
    reason, message = _effective_reason(attempt)
    if reason is ReasonCode.COMPLETED:
        if run.status != RunStatus.FINALIZING.value:
            move(session, run, RunStatus.FINALIZING, now=now)
        move(session, run, RunStatus.SUCCEEDED, now=now, reason=(reason, message))
    elif run.desired_state == DesiredState.CANCELLED.value:
        move(session, run, RunStatus.CANCELLED, now=now, reason=_cancellation(run))
    elif run.desired_state == DesiredState.PAUSED.value and REASONS[reason].after in PAUSABLE:
        # The pause's reason replaces that of the exit, but not a trainer's own reason to pause.
        if REASONS[reason].after is AfterEnd.RETRY or reason is ReasonCode.PAUSED_BY_USER:
            reason = ReasonCode(run.pause_code or ReasonCode.PAUSED_BY_USER.value)
            message = run.pause_message or REASONS[reason].wording
        move(session, run, RunStatus.PAUSED, now=now, reason=(reason, message))
    else:
        _retry_or_end(session, run, attempt, (reason, message), now=now)


def _cancellation(run: Run) -> tuple[ReasonCode, str]:
    """Return the reason of a guard's stop, else the user's; a pause before it does not count."""
    if run.pause_code is not None:
        reason = ReasonCode(run.pause_code)
        if REASONS[reason].after is AfterEnd.CANCEL:
            return reason, run.pause_message or REASONS[reason].wording
    reason = ReasonCode.CANCELLED_BY_USER
    return reason, REASONS[reason].wording


def tail_missing(attempt: Attempt) -> bool:
    """Return True when the trainer wrote events that have not arrived yet."""
    if attempt.trainer_code is not None or attempt.final_trainer_seq is None:
        return False
    return attempt.last_trainer_seq < attempt.final_trainer_seq


def _retry_or_end(
    session: Session, run: Run, attempt: Attempt, end: tuple[ReasonCode, str], *, now: datetime
) -> None:
    """Count the failure and change the run's status by the reason's row in the table."""
    reason, message = end
    facts = REASONS[reason]
    if facts.counts is FailureCounting.ALWAYS or (
        facts.counts is FailureCounting.WITHOUT_PROGRESS
        and not store.saved_checkpoint(session, run.id, attempt.number)
        and not store.validated_more(session, run.id, attempt.number)
    ):
        run.num_failures += 1
    to = status_after(reason, num_failures=run.num_failures)
    if to is not RunStatus.RECOVERING and facts.after is AfterEnd.RETRY:
        message = f"{message} (the last of {MAX_FAILURES} failed attempts)"
    if to is RunStatus.FAILED and reason is ReasonCode.CLUSTER_REFUSED and run.started_at:
        # It has trained on such machines: the refusal (a quota, a price) may be temporary.
        to = RunStatus.PAUSED
    if to is RunStatus.RECOVERING and run.status == RunStatus.PROVISIONING.value:
        # Nothing was lost: the run waits in the queue again.
        to = RunStatus.QUEUED if run.started_at is None else to
    move(session, run, to, now=now, reason=(reason, message))


def _effective_reason(attempt: Attempt) -> tuple[ReasonCode, str]:
    """Return the reason that the trainer reported, else the one observed from outside."""
    if attempt.trainer_code is not None:
        reason = ReasonCode(attempt.trainer_code)
        return reason, attempt.trainer_message or REASONS[reason].wording
    reason = ReasonCode(attempt.end_code or ReasonCode.INTERNAL.value)
    if reason is ReasonCode.COMPLETED and tail_missing(attempt):
        reason = ReasonCode.FINALIZE_TIMEOUT
        return reason, REASONS[reason].wording
    return reason, attempt.end_message or REASONS[reason].wording
