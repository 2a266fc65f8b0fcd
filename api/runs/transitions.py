"""The only writer of `Run.status`: each transition is checked, stamped and recorded as an event."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from api.runs.deadlines import CLUSTER_DEADLINES_S, DEADLINES_S, STEP_MARGIN_S
from api.runs.end_reasons import end_reason
from api.runs.errors import InvalidTransition
from api.runs.journal import SERVICE, Draft, append
from api.runs.queue_class import QueueClass, queue_class_of
from api.runs.status import TERMINAL, RunStatus, may_follow
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode

SHOWS_REASON = TERMINAL | {RunStatus.PAUSED, RunStatus.RECOVERING}
"""Statuses with an end reason."""


def move(
    session: Session,
    run: Run,
    to: RunStatus,
    *,
    now: datetime,
    actor: str = SERVICE,
    reason: tuple[ReasonCode, str] | None = None,
) -> None:
    """Change the status of a locked run, with its event, deadline and due time.

    `reason` is (code, message), stored for statuses of `SHOWS_REASON`. Raises InvalidTransition
    for a transition that is not in the table.
    """
    before = RunStatus(run.status)
    if not may_follow(before, to):
        raise InvalidTransition(f"Run {run.id} is {before} and cannot become {to}.")
    run.status = to
    run.status_since = now
    set_deadline(run, now=now)
    run.due_at = None if to in TERMINAL or to is RunStatus.PAUSED else now
    run.end_code = reason[0].value if reason and to in SHOWS_REASON else None
    run.end_message = reason[1] if reason and to in SHOWS_REASON else None
    if to in TERMINAL:
        run.ended_at = now
    if to is not RunStatus.RUNNING:
        run.progress_eta_s = None
        run.progress_phase = None
        run.stuck_at = None
    data: dict[str, object] = {"from": before.value, "to": to.value}
    if reason:
        data["reason"] = end_reason(reason[0], reason[1])
    draft = Draft(
        type="run.status_changed", at=now, actor=actor, attempt=run.attempt or None, data=data
    )
    append(session, run, [draft])


def set_deadline(run: Run, *, now: datetime) -> None:
    """Restart the deadline of the current status from `now`."""
    seconds = DEADLINES_S[RunStatus(run.status)]
    if queue_class_of(run) is QueueClass.CLUSTER:
        seconds = CLUSTER_DEADLINES_S.get(RunStatus(run.status), seconds)
    if run.status == RunStatus.RUNNING.value:
        # The trainer's own deadline comes first: its message names the cause.
        step_s = float(run.spec.get("schedule", {}).get("step_timeout_s", 0.0))
        seconds = max(seconds or 0.0, step_s + STEP_MARGIN_S)
    run.deadline_at = None if seconds is None else now + timedelta(seconds=seconds)
