"""The guard `stuck_progress`: how long a run may go without progress, known beforehand.

Ingest computes from the usual durations when the guard would trip, and the sweep finds runs whose
time has come: a run that reports nothing causes no ingest. Times are the service's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from api.runs.deadlines import RUNNER_LEASE_S
from api.runs.status import DesiredState, RunStatus
from api.scheduling.limits.guards.condition import Condition, GuardCheck
from api.scheduling.limits.guards.readings import MIN_STEPS, Readings, guards_of
from api.tables import Run
from hillclimb.protocol.events import (
    CheckpointSaved,
    EvalCompleted,
    Event,
    PhaseStarted,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.payloads.events import GuardEvidence

PROGRESS = (TrainerStarted, StepCompleted, EvalCompleted, CheckpointSaved)
EVAL = "eval"


def restart(readings: Readings, events: Sequence[Event], *, now: datetime) -> bool:
    """Set when the guard would trip; True if the events show progress.

    The beginning of an evaluation is no progress, but sets another time.
    """
    has_progress = any(isinstance(event, PROGRESS) for event in events)
    begins = any(isinstance(event, PhaseStarted) and event.phase == EVAL for event in events)
    if not has_progress and not begins:
        return False
    limit_s = _limit_s(readings) if readings.guards.stuck_progress.policy is not None else None
    stuck_at = None if limit_s is None else now + timedelta(seconds=limit_s)
    readings.run.stuck_at = stuck_at
    if has_progress:
        readings.run.progress_at = now
    return has_progress


def restart_clock(session: Session, run: Run, *, now: datetime) -> None:
    """Let the guard of a locked run wait for its whole time again: the service was down."""
    guards = guards_of(run)
    if run.stuck_at is None or guards is None:
        return
    limit_s = _limit_s(Readings(session, run, guards))
    run.stuck_at = None if limit_s is None else now + timedelta(seconds=limit_s)


def due_runs(session: Session, *, now: datetime, limit: int) -> Sequence[str]:
    """Return ids of the runs whose guard trips now."""
    query = (
        select(Run.id)
        .where(Run.stuck_at <= now, Run.status == RunStatus.RUNNING.value)
        .where(Run.desired_state == DesiredState.RUNNING.value)
        .order_by(Run.stuck_at)
        .limit(limit)
    )
    return session.scalars(query).all()


def extend_all(session: Session, *, now: datetime) -> None:
    """Let no guard trip within half a lease: no process of the API receives events.

    Few rows are written, however long the outage lasts.
    """
    lease = timedelta(seconds=RUNNER_LEASE_S)
    late = select(Run.id).where(Run.stuck_at < now + lease / 2)
    ids = session.scalars(late.with_for_update(skip_locked=True, key_share=True)).all()
    session.execute(
        update(Run)
        .where(Run.id.in_(ids))
        .values(stuck_at=now + lease, updated_at=Run.updated_at)
        .execution_options(synchronize_session=False)
    )


def check_stuck_progress(readings: Readings, *, now: datetime) -> GuardCheck:
    """Compare the time since the last progress with its limit, outages of the service included."""
    run = readings.run
    waited_s, limit_s = None, readings.guards.stuck_progress.min_s
    usual_s, longest_s = readings.usual_step_s(), readings.longest_eval_s()
    if run.stuck_at is None or run.progress_at is None:
        message = f"fewer than {MIN_STEPS} steps of this attempt, or its first evaluation"
        needs = "a usual duration to compare with"
    else:
        waited_s = max(0.0, (now - run.progress_at).total_seconds())
        limit_s = (run.stuck_at - run.progress_at).total_seconds()
        message = (
            f"no step, evaluation or checkpoint for {waited_s:.0f} s (limit {limit_s:.0f} s;"
            f" the median step takes {usual_s or 0.0:.1f} s)"
        )
        needs = f"{max(0.0, limit_s - waited_s):.0f} s more without progress"
    is_met = run.stuck_at is not None and run.stuck_at <= now
    return GuardCheck(
        condition=Condition.MET if is_met else Condition.BETWEEN,
        evidence=GuardEvidence(
            message=message,
            measured=waited_s,
            threshold=limit_s,
            unit="seconds",
            n=readings.step,
            items="steps",
            first_step=None,
            last_step=readings.step,
            figures={"median_step_s": usual_s, "longest_eval_s": longest_s},
        ),
        needs=needs,
    )


def _limit_s(readings: Readings) -> float | None:
    """Return the longest time without progress; None as long as no duration is usual."""
    guard = readings.guards.stuck_progress
    usual_s = readings.usual_step_s()
    if readings.run.progress_phase == EVAL:
        longest_s = readings.longest_eval_s()
        usual_s = None if longest_s is None or usual_s is None else max(usual_s, longest_s)
    return None if usual_s is None else max(guard.min_s, guard.factor * usual_s)
