"""Every status and what may befall it; and that doing it twice, or at once, does no harm."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from api.runs.deadlines import (
    DEADLINES_S,
    KILL_GRACE_S,
    RUN_LEASE_S,
    RUNNER_LEASE_S,
    TAIL_GRACE_S,
)
from api.runs.end_reasons import MAX_FAILURES
from api.runs.leases import claim_lease, due_runs
from api.runs.status import RunStatus
from hillclimb.protocol.end_reasons import ReasonCode
from tests.worker.run_simulation import RunSimulation
from worker.runs import driver

S = RunStatus


def test_queued_run_waits_without_a_runner_and_is_offered_with_one(sim: RunSimulation) -> None:
    run_id = sim.submit()
    assert sim.reconcile(run_id)
    assert sim.status(run_id) is S.QUEUED
    sim.register()
    sim.advance(10)
    assert sim.reconcile(run_id)
    assert sim.status(run_id) is S.PROVISIONING


def test_one_slot_takes_one_run_and_the_next_when_it_is_free(sim: RunSimulation) -> None:
    first = sim.running()
    second = sim.submit("second")
    sim.reconcile(second)
    assert sim.status(second) is S.QUEUED
    sim.push(sim.ended(2, ReasonCode.COMPLETED))
    sim.report(ReasonCode.COMPLETED, last_seq=2)
    sim.reconcile(second)
    assert (sim.status(first), sim.status(second)) == (S.SUCCEEDED, S.PROVISIONING)


def test_offer_that_nobody_claims_goes_back_to_the_queue(sim: RunSimulation) -> None:
    sim.register()
    run_id = sim.submit()
    sim.reconcile(run_id)
    sim.advance(DEADLINES_S[S.PROVISIONING] or 0)
    sim.reconcile(run_id)
    [attempt] = sim.attempts(run_id)
    assert attempt.end_code == "no_runner"
    assert sim.status(run_id) is S.QUEUED
    assert sim.run(run_id).num_failures == 0


@pytest.mark.parametrize(
    ("silent_from", "reason"), [(S.STARTING, "start_timeout"), (S.RUNNING, "stalled")]
)
def test_silent_trainer_is_killed_then_its_attempt_ends_and_the_next_is_offered(
    sim: RunSimulation, silent_from: RunStatus, reason: str
) -> None:
    run_id = sim.running() if silent_from is S.RUNNING else sim.claimed()
    assert sim.status(run_id) is silent_from
    attempt_id = sim.attempts(run_id)[0].id
    _alive_for(sim, DEADLINES_S[silent_from] or 0, attempt_id)
    sim.reconcile(run_id)
    assert sim.heartbeat(attempt_id)[0].action == "kill"
    _alive_for(sim, KILL_GRACE_S, attempt_id)
    sim.reconcile(run_id)
    assert sim.attempts(run_id)[0].end_code == reason
    assert sim.status(run_id) is S.PROVISIONING
    assert sim.run(run_id).num_failures == 1


def test_lost_runner_ends_the_attempt_and_another_runner_takes_the_next(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.push(sim.checkpoint(2, 1))
    sim.advance(RUNNER_LEASE_S + 1)
    sim.reconcile(run_id)
    assert sim.attempts(run_id)[0].end_code == "runner_lost"
    assert sim.status(run_id) is S.RECOVERING
    sim.register()
    sim.advance(10)
    sim.reconcile(run_id)
    assert sim.attempts(run_id)[1].resume_from == (
        f"runs/{run_id}/checkpoints/global_step_1/attempt-1"
    )


def test_trainer_that_speaks_is_not_lost_with_its_runner(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.advance(RUNNER_LEASE_S + 1)
    sim.push(sim.checkpoint(2, 1))
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.RUNNING


def test_crashed_trainer_goes_on_from_its_newest_checkpoint(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.push(sim.checkpoint(2, 2))
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=2)
    sim.reconcile(run_id)
    first, second = sim.attempts(run_id)
    assert first.end_code == "trainer_crashed"
    assert (second.state, second.from_step) == ("scheduled", 2)


def test_dead_trainers_tail_is_fetched_before_the_next_attempt_is_offered(
    sim: RunSimulation,
) -> None:
    run_id = sim.running()
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=3)
    assert sim.status(run_id) is S.RUNNING
    sim.mirror(run_id, 1, 1, sim.started(1), sim.checkpoint(2, 1), sim.checkpoint(3, 2))
    sim.reconcile(run_id)
    assert [attempt.from_step for attempt in sim.attempts(run_id)] == [0, 2]
    assert sim.types(run_id).count("checkpoint.saved") == 2


def test_tail_that_never_comes_is_waited_for_only_so_long(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=3)
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.RUNNING
    sim.advance(TAIL_GRACE_S + 1)
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.PROVISIONING


def test_run_fails_after_as_many_crashes_as_it_is_allowed(sim: RunSimulation) -> None:
    run_id = sim.running()
    for _ in range(MAX_FAILURES - 1):
        sim.report(ReasonCode.TRAINER_CRASHED, last_seq=0)
        sim.reconcile(run_id)
        assert sim.claim() is not None
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=0)
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.FAILED
    assert sim.run(run_id).due_at is None


def test_stopped_runner_costs_no_try(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.push(sim.checkpoint(2, 1), sim.ended(3, ReasonCode.RUNNER_STOPPED, 1))
    sim.report(ReasonCode.RUNNER_STOPPED, last_seq=3)
    sim.reconcile(run_id)
    assert sim.run(run_id).num_failures == 0
    assert sim.attempts(run_id)[1].from_step == 1


def test_outage_pauses_the_run_and_the_sweep_leaves_it_alone(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.push(sim.ended(2, ReasonCode.ENVIRONMENT_OUTAGE, 1))
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.PAUSING
    sim.report(ReasonCode.ENVIRONMENT_OUTAGE, last_seq=2)
    assert sim.status(run_id) is S.PAUSED
    assert not sim.reconcile(run_id)


def test_completed_run_succeeds_once_the_runner_reports(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.push(sim.ended(2, ReasonCode.COMPLETED))
    sim.reconcile(run_id)
    assert sim.status(run_id) is S.FINALIZING
    sim.report(ReasonCode.COMPLETED, last_seq=2)
    assert sim.status(run_id) is S.SUCCEEDED


def test_cancelled_run_is_stopped_by_heartbeat_and_killed_when_it_takes_too_long(
    sim: RunSimulation,
) -> None:
    run_id = sim.running()
    attempt_id = sim.attempts(run_id)[0].id
    sim.cancel(run_id)
    assert [command.action for command in sim.heartbeat(attempt_id)] == ["stop"]
    _alive_for(sim, DEADLINES_S[S.CANCELLING] or 0, attempt_id)
    sim.reconcile(run_id)
    assert [command.action for command in sim.heartbeat(attempt_id)] == ["kill"]
    sim.report(ReasonCode.RUNNER_STOPPED, last_seq=1)
    assert sim.status(run_id) is S.CANCELLED


def test_repeated_reconcile_changes_nothing(sim: RunSimulation) -> None:
    run_id = sim.running()
    before = sim.types(run_id)
    for _ in range(3):
        assert sim.reconcile(run_id)
    assert sim.types(run_id) == before


def test_reconciles_at_once_offer_one_attempt(sim: RunSimulation) -> None:
    sim.register(slots=4)
    run_id = sim.submit()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda i: sim.reconcile(run_id, f"worker-{i}"), range(8)))
    assert any(done)
    assert len(sim.attempts(run_id)) == 1
    assert sim.types(run_id).count("attempt.scheduled") == 1


def test_write_back_under_an_old_epoch_is_dropped(
    sim: RunSimulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    sim.register()
    run_id = sim.submit()

    def taken_over_meanwhile(*_: object) -> None:
        sim.advance(RUN_LEASE_S + 1)
        with sim.context.database.transaction() as session:
            assert claim_lease(session, run_id, owner="worker-2", now=sim.now)

    monkeypatch.setattr(driver, "_act", taken_over_meanwhile)
    assert not sim.reconcile(run_id)
    assert sim.status(run_id) is S.QUEUED
    assert sim.run(run_id).lease_owner == "worker-2"


def test_lease_of_a_dead_worker_is_taken_over_when_it_runs_out(sim: RunSimulation) -> None:
    sim.register()
    run_id = sim.submit()
    with sim.context.database.transaction() as session:
        claim_lease(session, run_id, owner="dead", now=sim.now)
    assert not sim.reconcile(run_id)
    sim.advance(RUN_LEASE_S + 1)
    sim.heartbeat()
    assert sim.reconcile(run_id)
    assert sim.status(run_id) is S.PROVISIONING


def test_sweep_finds_the_run_whose_bell_was_lost(sim: RunSimulation) -> None:
    run_id = sim.submit()
    with sim.context.database.transaction() as session:
        assert due_runs(session, now=sim.now) == [run_id]
    sim.reconcile(run_id)
    with sim.context.database.transaction() as session:
        assert due_runs(session, now=sim.now) == []
    sim.advance(10)
    with sim.context.database.transaction() as session:
        assert due_runs(session, now=sim.now) == [run_id]


def _alive_for(sim: RunSimulation, seconds: float, attempt_id: str) -> None:
    """Time passes; the runner is heard and holds the attempt."""
    sim.advance(seconds + 1)
    sim.heartbeat(attempt_id)
