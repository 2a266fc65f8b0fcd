"""The clock of the control plane is set by an hour while runs wait and train."""

from __future__ import annotations

from datetime import timedelta

import pytest

from api.runs.deadlines import RECHECK_S, RUNNER_LEASE_S
from api.runs.status import RunStatus
from api.tables import Run, Sweep
from tests.worker.run_simulation import RunSimulation
from tests.worker.runs.test_absence import one_round, rounds_for
from worker.runs import driver

HOUR_S = 3600.0


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
@pytest.mark.parametrize("comes_first", ["a sweep", "a task"])
def test_a_trainer_that_is_held_stays(sim: RunSimulation, seconds: float, comes_first: str) -> None:
    run_id = sim.running()
    one_round(sim)
    attempt_id = sim.attempts(run_id)[0].id
    sim.advance(seconds)
    if comes_first == "a task":
        driver.reconcile(sim.context, run_id, clock=sim.clock)
    rounds_for(sim, 2 * RUNNER_LEASE_S, attempt_id)
    assert (sim.status(run_id), sim.run(run_id).attempt) == (RunStatus.RUNNING, 1)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("seconds", [HOUR_S, -HOUR_S])
def test_a_runner_that_dies_afterwards_is_found_lost_after_its_lease(
    sim: RunSimulation, seconds: float
) -> None:
    run_id = sim.running()
    one_round(sim)
    sim.advance(seconds)
    rounds_for(sim, RUNNER_LEASE_S - 2 * RECHECK_S)
    assert sim.status(run_id) is RunStatus.RUNNING
    rounds_for(sim, 4 * RECHECK_S)
    assert sim.attempts(run_id)[0].end_code == "runner_lost"


@pytest.mark.usefixtures("api")
def test_a_run_that_waits_is_scheduled_at_once_after_the_clock_was_set_back(
    sim: RunSimulation,
) -> None:
    run_id = sim.submit()
    one_round(sim)
    sim.advance(-HOUR_S)
    sim.register()
    one_round(sim)
    assert sim.status(run_id) is RunStatus.PROVISIONING


@pytest.mark.usefixtures("api")
def test_nothing_is_due_in_an_hour_after_the_clock_was_set_back(sim: RunSimulation) -> None:
    run_ids = [sim.running(), sim.submit()]
    one_round(sim)
    sim.advance(-HOUR_S)
    one_round(sim)
    soon = sim.now + timedelta(seconds=2 * RUNNER_LEASE_S)
    with sim.context.database.transaction() as session:
        rows = [session.get_one(Run, run_id) for run_id in run_ids]
        assert all(row.due_at is not None and row.due_at <= soon for row in rows)
        assert session.query(Sweep).one().completed_at == sim.now
