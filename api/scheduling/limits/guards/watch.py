"""Evaluates the guards of a run: at ingest, after its events' rows are written, and at the sweep.

Always under the run's row lock and in the caller's transaction, so that a batch that arrives twice
trips nothing twice: its events are ignored before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from api.runs.status import AttemptState, DesiredState, RunStatus
from api.scheduling.limits.guards import stuck, trips
from api.scheduling.limits.guards.condition import Condition, GuardCheck
from api.scheduling.limits.guards.learning import (
    check_logprob_drift,
    check_no_signal,
    check_reward_collapse,
)
from api.scheduling.limits.guards.liveness import (
    check_idle_gpus,
    check_infra_errors,
    check_ungraded,
)
from api.scheduling.limits.guards.quality import check_eval_flat, check_hopeless
from api.scheduling.limits.guards.readings import Readings, guards_of
from api.tables import Attempt, Run
from hillclimb.protocol.events import EvalCompleted, Event, StepCompleted
from hillclimb.spec.monitoring.guards import GUARDS, GuardPolicy, GuardsSpec

STUCK = "stuck_progress"
AFTER_STEP: dict[str, Callable[[Readings], GuardCheck]] = {
    "idle_gpus": check_idle_gpus,
    "infra_errors": check_infra_errors,
    "ungraded": check_ungraded,
    "no_signal": check_no_signal,
    "logprob_drift": check_logprob_drift,
    "reward_collapse": check_reward_collapse,
}
"""Guards that a step may change."""
AFTER_EVAL: dict[str, Callable[[Readings], GuardCheck]] = {
    "eval_flat": check_eval_flat,
    "hopeless": check_hopeless,
}
"""Guards that an evaluation may change."""


def policy_of(guards: GuardsSpec, name: str) -> GuardPolicy | None:
    """Return the policy of a guard; None if it is off."""
    policy: GuardPolicy | None = getattr(guards, name).policy
    return policy


def watch(
    session: Session, run: Run, attempt: Attempt, events: Sequence[Event], *, now: datetime
) -> None:
    """Evaluate the guards that these events, whose rows are written, may have changed.

    After the last step nothing is left that a guard could save, but the run may still be stuck.
    """
    guards = guards_of(run)
    if guards is None or not _is_under_way(run, attempt):
        return
    readings = Readings(session, run, guards)
    has_progress = stuck.restart(readings, events, now=now)
    names = [*_due(events, readings.decoding)] if readings.step < readings.last_step else []
    due = [name for name in GUARDS if name in names and policy_of(guards, name) is not None]
    if not has_progress and not due:
        return
    open_trips = trips.open_trips(session, run.id)
    if has_progress and STUCK in open_trips:
        trips.clear(session, run, open_trips[STUCK], "the run makes progress again", now=now)
    for name in due:
        check = check_of(readings, name, now=now)
        trip = open_trips.get(name)
        if trip is None and check.condition is Condition.MET:
            trips.trip(session, run, name, policy_of(guards, name), check.evidence, now=now)
        elif trip is not None and check.condition is Condition.CLEAR:
            trips.clear(session, run, trip, check.evidence.message, now=now)


def trip_stuck(session: Session, run: Run, *, now: datetime) -> bool:
    """Trip the guard of progress of a locked run whose time has come; False if it has not."""
    guards = guards_of(run)
    is_due = run.stuck_at is not None and run.stuck_at <= now
    is_running = run.status == RunStatus.RUNNING.value
    if guards is None or not is_due or not is_running or not _may_go_on(run):
        return False
    check = stuck.check_stuck_progress(Readings(session, run, guards), now=now)
    run.stuck_at = None  # The next progress sets it again.
    policy = policy_of(guards, STUCK)
    return trips.trip(session, run, STUCK, policy, check.evidence, now=now)


def check_of(readings: Readings, name: str, *, now: datetime) -> GuardCheck:
    """Evaluate the condition of a guard."""
    if name == STUCK:
        return stuck.check_stuck_progress(readings, now=now)
    return (AFTER_STEP | AFTER_EVAL)[name](readings)


def _due(events: Sequence[Event], decoding: str) -> Iterable[str]:
    if any(isinstance(event, StepCompleted) for event in events):
        yield from AFTER_STEP
    if any(isinstance(event, EvalCompleted) and event.decoding == decoding for event in events):
        yield from AFTER_EVAL


def _is_under_way(run: Run, attempt: Attempt) -> bool:
    """Tell whether the attempt's trainer trains: a dead one's tail trips nothing."""
    is_alive = attempt.state != AttemptState.ENDED.value and attempt.stop_requested_at is None
    return run.status == RunStatus.RUNNING.value and is_alive and _may_go_on(run)


def _may_go_on(run: Run) -> bool:
    return run.desired_state == DesiredState.RUNNING.value
