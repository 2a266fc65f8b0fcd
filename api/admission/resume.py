"""What users do to runs they have: cancel, pause and resume."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import budgets
from api.runs import attempts, store
from api.runs.attempts import End
from api.runs.errors import InvalidTransition, NothingToResume
from api.runs.journal import Draft, append
from api.runs.light import kind_of
from api.runs.reasons import REASONS
from api.runs.status import TERMINAL, WAITING, AttemptState, DesiredState, RunStatus
from api.runs.stored_spec import spec_of
from api.runs.submit import submit
from api.runs.transitions import move
from api.tables import Run
from trainer.contract.reasons import ReasonCode
from trainer.contract.sections import LineageSpec, ResumedFrom

BY_USER = (ReasonCode.CANCELLED_BY_USER, REASONS[ReasonCode.CANCELLED_BY_USER].wording)
PAUSED_BY_USER = (ReasonCode.PAUSED_BY_USER, REASONS[ReasonCode.PAUSED_BY_USER].wording)


def cancel(session: Session, run: Run, *, actor: str, now: datetime) -> None:
    """Want the run cancelled: at once when nothing runs, else after its trainer checkpointed.

    Repeating it changes nothing; an ended run stays as it is. Raises InvalidTransition when the
    run has finished every step and is only being wrapped up.
    """
    status = RunStatus(run.status)
    if status in TERMINAL or run.desired_state == DesiredState.CANCELLED.value:
        return
    if status is RunStatus.FINALIZING:
        raise InvalidTransition(f"Run {run.id} has finished every step: nothing is left to cancel.")
    run.desired_state = DesiredState.CANCELLED.value
    append(session, run, [Draft(type="run.cancel_requested", at=now, actor=actor)])
    if not _leave(session, run, RunStatus.CANCELLING, BY_USER, actor=actor, now=now):
        move(session, run, RunStatus.CANCELLED, now=now, actor=actor, reason=BY_USER)


def pause(session: Session, run: Run, *, actor: str, now: datetime) -> None:
    """Want the run to rest: at once when nothing runs, else after its trainer checkpointed.

    Its slot is free then; `resume` goes on. Repeating it changes
    nothing. Raises InvalidTransition for a run that ended, is cancelled, or has finished every
    step.
    """
    status = RunStatus(run.status)
    if status in (RunStatus.PAUSED, RunStatus.PAUSING):
        return
    if status in TERMINAL or run.desired_state == DesiredState.CANCELLED.value:
        over = "has ended" if status in TERMINAL else "is being cancelled"
        raise InvalidTransition(f"Run {run.id} {over}: only a run under way can be paused.")
    if status is RunStatus.FINALIZING:
        raise InvalidTransition(f"Run {run.id} has finished every step: nothing is left to pause.")
    append(session, run, [Draft(type="run.pause_requested", at=now, actor=actor)])
    rest(session, run, PAUSED_BY_USER, actor=actor, now=now)


STOPPABLE = WAITING | {RunStatus.PROVISIONING, RunStatus.STARTING, RunStatus.RUNNING}
"""Statuses in which the service itself may let a run rest: in others it is on its way already."""


def rest(
    session: Session, run: Run, reason: tuple[ReasonCode, str], *, actor: str, now: datetime
) -> None:
    """Let a run that is under way rest for a reason (code, message); see `pause`."""
    run.desired_state = DesiredState.PAUSED.value
    run.pause_code, run.pause_message = reason[0].value, reason[1]
    if _leave(session, run, RunStatus.PAUSING, reason, actor=actor, now=now):
        return
    if RunStatus(run.status) in WAITING:
        move(session, run, RunStatus.PAUSED, now=now, actor=actor, reason=reason)


def _refuse_exhausted(session: Session, run: Run, *, now: datetime) -> None:
    for allowance in budgets.allowances(session, run, now=now):
        if allowance.is_used_up:
            raise InvalidTransition(
                f"The budget of run {run.id} is used up ({allowance.told()}): extend it"
                f" (POST /v1/runs/{run.id}/budget, hillclimb budget), then resume."
            )


def _leave(
    session: Session,
    run: Run,
    leaving: RunStatus,
    reason: tuple[ReasonCode, str],
    *,
    actor: str,
    now: datetime,
) -> bool:
    """Withdraw the attempt's offer, or let its trainer leave; False when no attempt is alive."""
    attempt = store.newest_attempt(session, run)
    if attempt is None or attempt.state == AttemptState.ENDED.value:
        return False
    if attempt.state == AttemptState.OFFERED.value:
        end = End(reason=reason[0], message=reason[1], actor=actor)
        attempts.end_attempt(session, run, attempt, end, now=now)
    else:
        attempts.request_stop(attempt, now=now)
        move(session, run, leaving, now=now, actor=actor)
    return True


def resume(session: Session, run: Run, *, actor: str, now: datetime) -> Run:
    """Go on from the newest checkpoint: the same run if it is paused, a new one if it ended.

    The new one has what is left of the budget, also of what earlier resumes of the run took.

    Raises NothingToResume without a complete checkpoint and for a run that ended and trains
    nothing, InvalidTransition for a run that is still at work or has finished every step, and
    where nothing is left of its budget, SpecOutdated where this version refuses its spec.
    """
    status = RunStatus(run.status)
    if status is RunStatus.PAUSED:
        _refuse_exhausted(session, run, now=now)
        run.num_failures = 0
        run.resumed_after = run.attempt
        run.pause_code = run.pause_message = None
        run.desired_state = DesiredState.RUNNING.value
        move(session, run, RunStatus.QUEUED, now=now, actor=actor)
        return run
    if status not in TERMINAL:
        raise InvalidTransition(f"Run {run.id} is {status}: only a paused or ended run resumes.")
    kind = kind_of(run)
    if kind != "train":
        raise NothingToResume(
            f"Run {run.id} is of kind {kind}, which saves nothing to go on from: submit its spec"
            " again instead."
        )
    if status is RunStatus.SUCCEEDED:
        raise InvalidTransition(
            f"Run {run.id} finished every step. To train on, submit its spec with a larger"
            " schedule.total_steps and lineage.resumed_from set to its last checkpoint."
        )
    checkpoint = store.newest_checkpoint(session, run.id)
    if checkpoint is None:
        raise NothingToResume(
            f"Run {run.id} saved no checkpoint before it ended: submit its spec again instead."
        )
    source = ResumedFrom(run_id=run.id, step=checkpoint.step, attempt=checkpoint.attempt)
    spec = spec_of(run)
    _refuse_exhausted(session, run, now=now)
    goes_on = {
        "lineage": LineageSpec(resumed_from=source),
        "budget": budgets.left_of(session, run, now=now),
    }
    spec = spec.model_copy(update=goes_on)
    return submit(session, spec, project_id=run.project_id, actor=actor, now=now, is_resumed=True)
