"""Every status and what may befall it; and that doing it twice, or at once, does no harm."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from api.runs.advance import KILL_GRACE_S
from api.runs.attempts import TAIL_GRACE_S
from api.runs.leases import LEASE_S, claim_lease, due_runs
from api.runs.reasons import MAX_FAILURES
from api.runs.runners import LEASE_S as RUNNER_LEASE_S
from api.runs.status import DEADLINES_S, RunStatus
from tests.worker.scene import Scene
from trainer.contract.reasons import ReasonCode
from worker import driver

S = RunStatus


def test_queued_run_waits_without_a_runner_and_is_offered_with_one(scene: Scene) -> None:
    run_id = scene.submit()
    assert scene.reconcile(run_id)
    assert scene.status(run_id) is S.QUEUED
    scene.register()
    scene.later(10)
    assert scene.reconcile(run_id)
    assert scene.status(run_id) is S.PROVISIONING


def test_one_slot_takes_one_run_and_the_next_when_it_is_free(scene: Scene) -> None:
    first = scene.running()
    second = scene.submit("second")
    scene.reconcile(second)
    assert scene.status(second) is S.QUEUED
    scene.push(scene.ended(2, ReasonCode.COMPLETED))
    scene.report(ReasonCode.COMPLETED, last_seq=2)
    scene.reconcile(second)
    assert (scene.status(first), scene.status(second)) == (S.SUCCEEDED, S.PROVISIONING)


def test_offer_that_nobody_claims_goes_back_to_the_queue(scene: Scene) -> None:
    scene.register()
    run_id = scene.submit()
    scene.reconcile(run_id)
    scene.later(DEADLINES_S[S.PROVISIONING] or 0)
    scene.reconcile(run_id)
    [attempt] = scene.attempts(run_id)
    assert attempt.end_code == "no_runner"
    assert scene.status(run_id) is S.QUEUED
    assert scene.run(run_id).num_failures == 0


@pytest.mark.parametrize(
    ("silent_from", "reason"), [(S.STARTING, "start_timeout"), (S.RUNNING, "stalled")]
)
def test_silent_trainer_is_killed_then_its_attempt_ends_and_the_next_is_offered(
    scene: Scene, silent_from: RunStatus, reason: str
) -> None:
    run_id = scene.running() if silent_from is S.RUNNING else _claimed(scene)
    assert scene.status(run_id) is silent_from
    attempt_id = scene.attempts(run_id)[0].id
    _alive_for(scene, DEADLINES_S[silent_from] or 0, attempt_id)
    scene.reconcile(run_id)
    assert scene.heartbeat(attempt_id)[0].action == "kill"
    _alive_for(scene, KILL_GRACE_S, attempt_id)
    scene.reconcile(run_id)
    assert scene.attempts(run_id)[0].end_code == reason
    assert scene.status(run_id) is S.PROVISIONING
    assert scene.run(run_id).num_failures == 1


def test_lost_runner_ends_the_attempt_and_another_runner_takes_the_next(scene: Scene) -> None:
    run_id = scene.running()
    scene.push(scene.checkpoint(2, 1))
    scene.later(RUNNER_LEASE_S + 1)
    scene.reconcile(run_id)
    assert scene.attempts(run_id)[0].end_code == "runner_lost"
    assert scene.status(run_id) is S.RECOVERING
    scene.register()
    scene.later(10)
    scene.reconcile(run_id)
    assert scene.attempts(run_id)[1].resume_from == (
        f"runs/{run_id}/checkpoints/global_step_1/attempt-1"
    )


def test_trainer_that_speaks_is_not_lost_with_its_runner(scene: Scene) -> None:
    run_id = scene.running()
    scene.later(RUNNER_LEASE_S + 1)
    scene.push(scene.checkpoint(2, 1))
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.RUNNING


def test_crashed_trainer_goes_on_from_its_newest_checkpoint(scene: Scene) -> None:
    run_id = scene.running()
    scene.push(scene.checkpoint(2, 2))
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=2)
    scene.reconcile(run_id)
    first, second = scene.attempts(run_id)
    assert first.end_code == "trainer_crashed"
    assert (second.state, second.from_step) == ("offered", 2)


def test_dead_trainers_tail_is_fetched_before_the_next_attempt_is_offered(scene: Scene) -> None:
    run_id = scene.running()
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=3)
    assert scene.status(run_id) is S.RUNNING
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(2, 1), scene.checkpoint(3, 2))
    scene.reconcile(run_id)
    assert [attempt.from_step for attempt in scene.attempts(run_id)] == [0, 2]
    assert scene.types(run_id).count("checkpoint.saved") == 2


def test_tail_that_never_comes_is_waited_for_only_so_long(scene: Scene) -> None:
    run_id = scene.running()
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=3)
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.RUNNING
    scene.later(TAIL_GRACE_S + 1)
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.PROVISIONING


def test_run_fails_after_as_many_crashes_as_it_is_allowed(scene: Scene) -> None:
    run_id = scene.running()
    for _ in range(MAX_FAILURES - 1):
        scene.report(ReasonCode.TRAINER_CRASHED, last_seq=0)
        scene.reconcile(run_id)
        assert scene.claim() is not None
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=0)
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.FAILED
    assert scene.run(run_id).due_at is None


def test_stopped_runner_costs_no_try(scene: Scene) -> None:
    run_id = scene.running()
    scene.push(scene.checkpoint(2, 1), scene.ended(3, ReasonCode.RUNNER_STOPPED, 1))
    scene.report(ReasonCode.RUNNER_STOPPED, last_seq=3)
    scene.reconcile(run_id)
    assert scene.run(run_id).num_failures == 0
    assert scene.attempts(run_id)[1].from_step == 1


def test_outage_pauses_the_run_and_the_sweep_leaves_it_alone(scene: Scene) -> None:
    run_id = scene.running()
    scene.push(scene.ended(2, ReasonCode.ENVIRONMENT_OUTAGE, 1))
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.PAUSING
    scene.report(ReasonCode.ENVIRONMENT_OUTAGE, last_seq=2)
    assert scene.status(run_id) is S.PAUSED
    assert not scene.reconcile(run_id)


def test_completed_run_succeeds_once_the_runner_reports(scene: Scene) -> None:
    run_id = scene.running()
    scene.push(scene.ended(2, ReasonCode.COMPLETED))
    scene.reconcile(run_id)
    assert scene.status(run_id) is S.FINALIZING
    scene.report(ReasonCode.COMPLETED, last_seq=2)
    assert scene.status(run_id) is S.SUCCEEDED


def test_cancelled_run_is_stopped_by_heartbeat_and_killed_when_it_takes_too_long(
    scene: Scene,
) -> None:
    run_id = scene.running()
    attempt_id = scene.attempts(run_id)[0].id
    scene.cancel(run_id)
    assert [command.action for command in scene.heartbeat(attempt_id)] == ["stop"]
    _alive_for(scene, DEADLINES_S[S.CANCELLING] or 0, attempt_id)
    scene.reconcile(run_id)
    assert [command.action for command in scene.heartbeat(attempt_id)] == ["kill"]
    scene.report(ReasonCode.RUNNER_STOPPED, last_seq=1)
    assert scene.status(run_id) is S.CANCELLED


def test_repeated_reconcile_changes_nothing(scene: Scene) -> None:
    run_id = scene.running()
    before = scene.types(run_id)
    for _ in range(3):
        assert scene.reconcile(run_id)
    assert scene.types(run_id) == before


def test_reconciles_at_once_offer_one_attempt(scene: Scene) -> None:
    scene.register(slots=4)
    run_id = scene.submit()
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda i: scene.reconcile(run_id, f"worker-{i}"), range(8)))
    assert any(done)
    assert len(scene.attempts(run_id)) == 1
    assert scene.types(run_id).count("attempt.offered") == 1


def test_write_back_under_an_old_epoch_is_dropped(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.register()
    run_id = scene.submit()

    def taken_over_meanwhile(*_: object) -> None:
        scene.later(LEASE_S + 1)
        with scene.parts.database.transaction() as session:
            assert claim_lease(session, run_id, owner="worker-2", now=scene.now)

    monkeypatch.setattr(driver, "_act", taken_over_meanwhile)
    assert not scene.reconcile(run_id)
    assert scene.status(run_id) is S.QUEUED
    assert scene.run(run_id).lease_owner == "worker-2"


def test_lease_of_a_dead_worker_is_taken_over_when_it_runs_out(scene: Scene) -> None:
    scene.register()
    run_id = scene.submit()
    with scene.parts.database.transaction() as session:
        claim_lease(session, run_id, owner="dead", now=scene.now)
    assert not scene.reconcile(run_id)
    scene.later(LEASE_S + 1)
    scene.heartbeat()
    assert scene.reconcile(run_id)
    assert scene.status(run_id) is S.PROVISIONING


def test_sweep_finds_the_run_whose_bell_was_lost(scene: Scene) -> None:
    run_id = scene.submit()
    with scene.parts.database.transaction() as session:
        assert due_runs(session, now=scene.now) == [run_id]
    scene.reconcile(run_id)
    with scene.parts.database.transaction() as session:
        assert due_runs(session, now=scene.now) == []
    scene.later(10)
    with scene.parts.database.transaction() as session:
        assert due_runs(session, now=scene.now) == [run_id]


def _claimed(scene: Scene) -> str:
    scene.register()
    run_id = scene.submit()
    scene.reconcile(run_id)
    assert scene.claim() is not None
    return run_id


def _alive_for(scene: Scene, seconds: float, attempt_id: str) -> None:
    """Time passes; the runner is heard and holds the attempt."""
    scene.later(seconds + 1)
    scene.heartbeat(attempt_id)
