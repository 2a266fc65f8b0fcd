"""Cancels and pauses runs, at once or after the trainer has saved a checkpoint."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from api.runs import store
from api.runs.end_reasons import REASONS
from api.runs.errors import InvalidTransition
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL, WAITING, AttemptState, DesiredState, RunStatus
from api.runs.transitions import move
from api.scheduling import attempts
from api.scheduling.attempts import AttemptEnd
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode

CANCELLED_BY_USER = (ReasonCode.CANCELLED_BY_USER, REASONS[ReasonCode.CANCELLED_BY_USER].wording)
PAUSED_BY_USER = (ReasonCode.PAUSED_BY_USER, REASONS[ReasonCode.PAUSED_BY_USER].wording)


def cancel(session: Session, run: Run, *, actor: str, now: datetime) -> None:
    """Cancel the run: at once when no trainer runs, else after its trainer saved a checkpoint.

    Idempotent; an ended run stays as it is. Raises InvalidTransition when the run has finished
    every step and waits only for its last events, and RunImported.
    """
    store.refuse_imported(run, "be cancelled")
    status = RunStatus(run.status)
    if status in TERMINAL or run.desired_state == DesiredState.CANCELLED.value:
        return
    if status is RunStatus.FINALIZING:
        raise InvalidTransition(f"Run {run.id} has finished every step: nothing is left to cancel.")
    run.desired_state = DesiredState.CANCELLED.value
    append(session, run, [Draft(type="run.cancel_requested", at=now, actor=actor)])
    if not _end_or_stop(
        session, run, RunStatus.CANCELLING, CANCELLED_BY_USER, actor=actor, now=now
    ):
        move(session, run, RunStatus.CANCELLED, now=now, actor=actor, reason=CANCELLED_BY_USER)


def pause(session: Session, run: Run, *, actor: str, now: datetime) -> None:
    """Pause the run: at once when no trainer runs, else after its trainer saved a checkpoint.

    That frees its slot. Idempotent. Raises InvalidTransition for a run that ended, is cancelled,
    or has finished every step, and RunImported.
    """
    store.refuse_imported(run, "be paused")
    status = RunStatus(run.status)
    if status in (RunStatus.PAUSED, RunStatus.PAUSING):
        return
    if status in TERMINAL or run.desired_state == DesiredState.CANCELLED.value:
        state = "has ended" if status in TERMINAL else "is being cancelled"
        raise InvalidTransition(f"Run {run.id} {state}: only a run under way can be paused.")
    if status is RunStatus.FINALIZING:
        raise InvalidTransition(f"Run {run.id} has finished every step: nothing is left to pause.")
    append(session, run, [Draft(type="run.pause_requested", at=now, actor=actor)])
    pause_for_reason(session, run, PAUSED_BY_USER, actor=actor, now=now)


STOPPABLE = WAITING | {RunStatus.PROVISIONING, RunStatus.STARTING, RunStatus.RUNNING}
"""Statuses in which the service may pause a run: in others its attempt already ends."""


def pause_for_reason(
    session: Session, run: Run, reason: tuple[ReasonCode, str], *, actor: str, now: datetime
) -> None:
    """Pause a run under way for a reason (code, message); see `pause`."""
    run.desired_state = DesiredState.PAUSED.value
    run.pause_code, run.pause_message = reason[0].value, reason[1]
    if _end_or_stop(session, run, RunStatus.PAUSING, reason, actor=actor, now=now):
        return
    if RunStatus(run.status) in WAITING:
        move(session, run, RunStatus.PAUSED, now=now, actor=actor, reason=reason)


def stop_for_reason(
    session: Session, run: Run, reason: tuple[ReasonCode, str], *, actor: str, now: datetime
) -> None:
    """End a run under way for a reason (code, message), after its trainer saved a checkpoint."""
    run.desired_state = DesiredState.CANCELLED.value
    run.pause_code, run.pause_message = reason[0].value, reason[1]
    if not _end_or_stop(session, run, RunStatus.CANCELLING, reason, actor=actor, now=now):
        move(session, run, RunStatus.CANCELLED, now=now, actor=actor, reason=reason)


def _end_or_stop(
    session: Session,
    run: Run,
    status: RunStatus,
    reason: tuple[ReasonCode, str],
    *,
    actor: str,
    now: datetime,
) -> bool:
    """End a scheduled attempt, or stop its trainer; False when there is no live attempt."""
    attempt = store.newest_attempt(session, run)
    if attempt is None or attempt.state == AttemptState.ENDED.value:
        return False
    if attempt.state == AttemptState.SCHEDULED.value:
        end = AttemptEnd(reason=reason[0], message=reason[1], actor=actor)
        attempts.end_attempt(session, run, attempt, end, now=now)
    else:
        attempts.request_stop(attempt, now=now)
        move(session, run, status, now=now, actor=actor)
    return True
