"""The guard of progress: it trips in the sweep, before the deadlines, and never for an outage."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from api.runs.deadlines import DEADLINES_S, KILL_GRACE_S, RECHECK_S, SERVICE_DOWN_S
from api.runs.status import RunStatus
from api.tables import RunEvent
from hillclimb.protocol.events import EvalCompleted, Event, PhaseStarted, StepCompleted
from tests.fixtures.factories import outcome
from tests.worker.api_presence import Api
from tests.worker.run_simulation import RunSimulation, spec
from worker.runs import guards, sweeps

STEP_S = 30.0


def trained(sim: RunSimulation, guard: dict[str, Any], *, steps: int = 3) -> str:
    """A run that has taken steps of half a minute each."""
    body = spec().model_dump() | {"guards": {"stuck_progress": guard}}
    run_id = sim.running(type(spec()).model_validate(body))
    for step in range(1, steps + 1):
        sim.advance(STEP_S)
        sim.push(a_step(sim, run_id, step))
    return run_id


def place(sim: RunSimulation, run_id: str, step: int) -> dict[str, Any]:
    seq = sim.attempts(run_id)[-1].last_trainer_seq + 1
    return {"trainer_seq": seq, "at": sim.now, "step": step}


def a_step(sim: RunSimulation, run_id: str, step: int) -> StepCompleted:
    metrics = {"timing/step": STEP_S}
    return StepCompleted(**place(sim, run_id, step), metrics=metrics, outcomes=())


def phase(sim: RunSimulation, run_id: str, name: str) -> Event:
    return PhaseStarted.model_validate({**place(sim, run_id, 3), "phase": name})


def evaluated(sim: RunSimulation, run_id: str, duration_s: float) -> Event:
    return EvalCompleted(
        **place(sim, run_id, 3),
        decoding="sampled",
        temperature=1.0,
        n_samples_per_prompt=1,
        pass_threshold=1.0,
        metrics={},
        outcomes=(outcome("r-1", split="eval", decoding="sampled"),),
        duration_s=duration_s,
    )


def after(sim: RunSimulation, seconds: float) -> int:
    """Let time pass with a live worker; the number of guards that trip at its end."""
    sim.advance(seconds)
    return guards.sweep(sim.context, now=sim.now)


def told(sim: RunSimulation, run_id: str) -> list[RunEvent]:
    query = select(RunEvent).where(RunEvent.run_id == run_id).order_by(RunEvent.seq)
    with sim.context.database.transaction() as session:
        return [each for each in session.scalars(query) if each.type.startswith("guard.")]


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize(
    ("guard", "limit_s"),
    [({}, 600.0), ({"factor": 50.0}, 1500.0), ({"factor": 4.0, "min_s": 60.0}, 120.0)],
)
def test_a_run_without_progress_trips_at_its_limit_and_once(
    sim: RunSimulation, guard: dict[str, float], limit_s: float
) -> None:
    run_id = trained(sim, guard)
    assert after(sim, limit_s - 1.0) == 0
    assert after(sim, 1.0) == 1
    assert after(sim, 10 * limit_s) == 0
    (event,) = told(sim, run_id)
    evidence = event.data["evidence"]
    assert (event.type, event.data["guard"]) == ("guard.tripped", "stuck_progress")
    assert (evidence["measured"], evidence["threshold"]) == (limit_s, limit_s)
    assert evidence["figures"]["median_step_s"] == STEP_S
    assert sim.status(run_id) is RunStatus.RUNNING


@pytest.mark.usefixtures("api")
def test_progress_clears_it_and_arms_it_again(sim: RunSimulation) -> None:
    run_id = trained(sim, {})
    assert after(sim, 600.0) == 1
    sim.push(a_step(sim, run_id, 4))
    assert [each.type for each in told(sim, run_id)] == ["guard.tripped", "guard.cleared"]
    assert after(sim, 599.0) == 0
    assert after(sim, 1.0) == 1
    assert told(sim, run_id)[-1].data["number"] == 2


@pytest.mark.usefixtures("api")
def test_phases_are_no_progress(sim: RunSimulation) -> None:
    run_id = trained(sim, {})
    for _ in range(5):
        sim.advance(100.0)
        sim.push(phase(sim, run_id, "rollout"))
    assert after(sim, 100.0) == 1


@pytest.mark.usefixtures("api")
def test_it_pauses_the_run_before_the_deadline_ends_it(sim: RunSimulation) -> None:
    run_id = trained(sim, {"policy": "pause"})
    deadline = sim.run(run_id).deadline_at
    assert after(sim, 600.0) == 1
    assert deadline is not None
    assert sim.now < deadline
    run = sim.run(run_id)
    assert (run.status, run.pause_code, run.stuck_at) == ("pausing", "paused_by_guard", None)


@pytest.mark.usefixtures("api")
def test_a_guard_that_is_off_never_trips(sim: RunSimulation) -> None:
    run_id = trained(sim, {"policy": None})
    assert (after(sim, 5000.0), sim.run(run_id).stuck_at) == (0, None)


@pytest.mark.usefixtures("api")
def test_two_steps_are_too_few_to_know_what_is_usual(sim: RunSimulation) -> None:
    run_id = trained(sim, {}, steps=2)
    assert (after(sim, 5000.0), sim.run(run_id).stuck_at) == (0, None)
    sim.push(a_step(sim, run_id, 3))
    assert sim.run(run_id).stuck_at is not None


@pytest.mark.usefixtures("api")
def test_an_evaluation_may_take_as_long_as_evaluations_do(sim: RunSimulation) -> None:
    run_id = trained(sim, {})
    sim.push(phase(sim, run_id, "eval"))
    assert after(sim, 1000.0) == 0, "the attempt's first evaluation has no usual duration"
    sim.push(evaluated(sim, run_id, 200.0))
    sim.push(phase(sim, run_id, "rollout"))
    sim.push(a_step(sim, run_id, 4))
    sim.push(phase(sim, run_id, "eval"))
    assert after(sim, 1999.0) == 0
    assert after(sim, 1.0) == 1


def test_nothing_trips_while_no_api_receives_events(sim: RunSimulation, api: Api) -> None:
    run_id = trained(sim, {})
    api.goes()
    assert after(sim, 3000.0) == 0
    api.comes()
    assert after(sim, 30.0) == 0
    assert after(sim, 30.0) == 1, "a lease later the trainer would have reported"
    assert told(sim, run_id)[0].data["evidence"]["measured"] == 3060.0


@pytest.mark.usefixtures("api")
def test_after_an_outage_of_the_worker_it_waits_for_its_whole_time_again(
    sim: RunSimulation,
) -> None:
    run_id = trained(sim, {})
    sweeps.runs(sim.context, now=sim.now)
    sim.advance(SERVICE_DOWN_S + RECHECK_S + 3000.0)
    sweeps.runs(sim.context, now=sim.now)
    assert guards.sweep(sim.context, now=sim.now) == 0
    assert after(sim, 599.0) == 0
    assert after(sim, 1.0) == 1
    assert sim.status(run_id) is RunStatus.RUNNING


@pytest.mark.usefixtures("api")
def test_a_stuck_trainer_that_does_not_leave_is_killed_and_the_guard_is_the_reason(
    sim: RunSimulation,
) -> None:
    run_id = trained(sim, {"policy": "stop"})
    attempt_id = sim.attempts(run_id)[0].id
    assert after(sim, 600.0) == 1
    assert [each.action for each in sim.heartbeat(attempt_id)] == ["stop"]
    sim.advance(DEADLINES_S[RunStatus.CANCELLING] or 0.0)
    sim.heartbeat(attempt_id)
    sim.reconcile(run_id)
    assert [each.action for each in sim.heartbeat(attempt_id)] == ["kill"]
    sim.advance(KILL_GRACE_S)
    sim.heartbeat(attempt_id)
    sim.reconcile(run_id)
    run = sim.run(run_id)
    assert (run.status, run.end_code) == ("cancelled", "stopped_by_guard")
