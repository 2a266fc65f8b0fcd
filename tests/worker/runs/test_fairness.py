"""A long queue of one project keeps no run, of any project, from being checked."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from api.runs.deadlines import RUNNER_LEASE_S, SERVICE_DOWN_S
from api.runs.status import RunStatus
from api.tables import Project, Run
from tests.worker.run_simulation import RunSimulation
from worker.app import SWEEP, SWEEP_PERIOD_S
from worker.runs import driver, sweeps

CROWD = "prj_crowd"
NUM_QUEUED = 1_000
LOOKS_PER_SWEEP = 40
"""A busy worker; 27 looks a second were measured on two shared cores."""

COLUMNS = ", ".join(c.name for c in Run.__table__.columns if c.computed is None)
COPIES = text(f"""
INSERT INTO runs ({COLUMNS}) SELECT {COLUMNS} FROM (
    SELECT (jsonb_populate_record(r, jsonb_build_object(
        'id', 'run_crowd' || n, 'project_id', CAST(:project AS text), 'due_at', r.created_at))).*
    FROM runs r, generate_series(1, :num) n WHERE r.id = :id
) copies
""")


def crowd(sim: RunSimulation, num: int = NUM_QUEUED) -> None:
    """Let another project, which has no runner, queue runs."""
    run_id = sim.submit("crowd")
    with sim.context.database.transaction() as session:
        session.add(Project(id=CROWD, name="crowd"))
        session.flush()
        session.execute(COPIES, {"project": CROWD, "num": num, "id": run_id})
    sim.cancel(run_id)


def sweep(sim: RunSimulation) -> list[str]:
    """One period of a worker that does not get done with everything; returns what it checked."""
    sim.advance(SWEEP_PERIOD_S[SWEEP])
    checked = list(sweeps.runs(sim.context, now=sim.now))[:LOOKS_PER_SWEEP]
    for run_id in checked:
        driver.reconcile(sim.context, run_id, must_be_due=True, clock=sim.clock)
    return checked


@pytest.mark.usefixtures("api")
def test_a_dead_runner_is_noticed_within_its_lease_whatever_another_project_queues(
    sim: RunSimulation,
) -> None:
    sweep(sim)
    run_id = sim.running()
    crowd(sim)
    died_at = sim.now
    while sim.status(run_id) is RunStatus.RUNNING:
        sweep(sim)
        waited_s = (sim.now - died_at).total_seconds()
        assert waited_s <= RUNNER_LEASE_S + 2 * SWEEP_PERIOD_S[SWEEP]
    assert sim.status(run_id) is RunStatus.RECOVERING


@pytest.mark.usefixtures("api")
def test_a_thousand_waiting_runs_cost_a_sweep_nothing_while_no_slot_is_free(
    sim: RunSimulation,
) -> None:
    crowd(sim)
    sweep(sim)
    assert [sweep(sim) for _ in range(10)] == [[]] * 10


@pytest.mark.usefixtures("api")
def test_a_sweep_that_goes_on_proves_that_no_outage_made_a_run_late(sim: RunSimulation) -> None:
    """However late the run's own check is: nothing is renewed."""
    sweep(sim)
    run_id = sim.running()
    held_at = sim.attempts(run_id)[0].last_held_at
    waited_s = 0.0
    while waited_s < SERVICE_DOWN_S + 10:
        sim.advance(SWEEP_PERIOD_S[SWEEP])
        waited_s += SWEEP_PERIOD_S[SWEEP]
        with sim.context.database.transaction() as session:
            overdue = "UPDATE runs SET due_at = created_at WHERE id = :id"
            session.execute(text(overdue), {"id": run_id})
        sweeps.runs(sim.context, now=sim.now)
    assert sim.attempts(run_id)[0].last_held_at == held_at
