"""The control plane was away: what it finds when it is back is not taken for dead or late."""

from __future__ import annotations

import pytest

from api.runs.deadlines import DEADLINES_S, KILL_GRACE_S, RECHECK_S, RUNNER_LEASE_S, SERVICE_DOWN_S
from api.runs.status import RunStatus
from tests.worker.run_simulation import RunSimulation
from worker.runs import driver, sweeps

S = RunStatus
SILENCE_S = 3 * RUNNER_LEASE_S
OUTAGE_S = 35 * 60.0
SELDOM_S = 30.0
"""Between rounds where many would show no more: less than `SERVICE_DOWN_S` and a runner's lease."""


def one_round(sim: RunSimulation) -> None:
    for run_id in sweeps.runs(sim.context, now=sim.now):
        driver.reconcile(sim.context, run_id, must_be_due=True, clock=sim.clock)


def rounds_for(sim: RunSimulation, seconds: float, *held: str, every_s: float = RECHECK_S) -> None:
    end = sim.now.timestamp() + seconds
    while sim.now.timestamp() < end:
        sim.advance(every_s)
        if held:
            sim.heartbeat(*held)
        one_round(sim)


@pytest.mark.usefixtures("api")
@pytest.mark.parametrize("status", [S.STARTING, S.RUNNING])
def test_a_trainer_is_neither_late_nor_lost_after_an_outage_of_the_database(
    sim: RunSimulation, status: RunStatus
) -> None:
    run_id = sim.running() if status is S.RUNNING else sim.claimed()
    one_round(sim)
    attempt_id = sim.attempts(run_id)[0].id
    sim.advance(OUTAGE_S)
    one_round(sim)
    sim.advance(RECHECK_S)
    one_round(sim)
    assert sim.heartbeat(attempt_id) == ()
    assert (sim.status(run_id), sim.run(run_id).attempt) == (status, 1)


@pytest.mark.usefixtures("api")
def test_what_is_dead_after_an_outage_is_found_so_once_its_time_is_over_again(
    sim: RunSimulation,
) -> None:
    run_id = sim.running()
    one_round(sim)
    sim.advance(OUTAGE_S)
    one_round(sim)
    rounds_for(sim, RUNNER_LEASE_S - RECHECK_S)
    assert sim.status(run_id) is S.RUNNING
    rounds_for(sim, 2 * RECHECK_S)
    assert sim.attempts(run_id)[0].end_code == "runner_lost"


def test_while_the_api_alone_is_away_no_runner_is_taken_for_lost(sim: RunSimulation) -> None:
    """The worker goes on looking, and hears nobody."""
    run_id = sim.running()
    rounds_for(sim, SILENCE_S)
    assert (sim.status(run_id), sim.run(run_id).attempt) == (S.RUNNING, 1)
    attempt_id = sim.attempts(run_id)[0].id
    assert sim.heartbeat(attempt_id) == ()


def test_a_deadline_does_not_pass_while_nobody_could_be_told(sim: RunSimulation) -> None:
    """A runner that was asked to pause cannot say that it does, nor hear that it is to kill."""
    run_id = sim.running()
    sim.pause(run_id)
    one_round(sim)
    assert sim.status(run_id) is S.PAUSING
    rounds_for(sim, 2 * (DEADLINES_S[S.PAUSING] or 0), every_s=SELDOM_S)
    assert sim.status(run_id) is S.PAUSING
    assert sim.attempts(run_id)[0].kill_requested_at is None


@pytest.mark.usefixtures("api")
def test_while_the_api_is_there_a_silent_runner_is_lost(sim: RunSimulation) -> None:
    run_id = sim.running()
    rounds_for(sim, SILENCE_S)
    assert sim.attempts(run_id)[0].end_code == "runner_lost"


def test_what_the_api_left_behind_is_held_on_in_few_writes(sim: RunSimulation) -> None:
    run_id = sim.running()
    held = set()
    for _ in range(30):
        sim.advance(2.0)
        one_round(sim)
        held.add(sim.attempts(run_id)[0].last_held_at)
    assert len(held) == 2


@pytest.mark.invariant("an outage does not hide a silent trainer for good")
@pytest.mark.usefixtures("api")
def test_a_trainer_that_says_nothing_is_ended_after_an_outage_too(sim: RunSimulation) -> None:
    run_id = sim.claimed()
    one_round(sim)
    attempt_id = sim.attempts(run_id)[0].id
    sim.advance(OUTAGE_S)
    rounds_for(sim, RECHECK_S, attempt_id)
    until_late = DEADLINES_S[S.STARTING] or 0
    assert until_late % SELDOM_S == 0, "rounds would go beyond it"
    rounds_for(sim, until_late - SELDOM_S, attempt_id, every_s=SELDOM_S)
    rounds_for(sim, SELDOM_S - 2 * RECHECK_S, attempt_id)
    assert sim.attempts(run_id)[0].kill_requested_at is None
    rounds_for(sim, 2 * RECHECK_S, attempt_id)
    assert sim.attempts(run_id)[0].kill_requested_at is not None
    sim.advance(SERVICE_DOWN_S + KILL_GRACE_S)
    sim.heartbeat(attempt_id)
    one_round(sim)
    assert sim.attempts(run_id)[0].end_code == "start_timeout"


def test_a_pause_in_the_clock_that_is_not_long_forgives_nothing(sim: RunSimulation) -> None:
    run_id = sim.claimed()
    attempt_id = sim.attempts(run_id)[0].id
    one_round(sim)
    before = sim.run(run_id).deadline_at
    sim.advance(SERVICE_DOWN_S - RECHECK_S)
    sim.heartbeat(attempt_id)
    one_round(sim)
    assert sim.run(run_id).deadline_at == before
