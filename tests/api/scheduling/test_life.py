"""The life of a run: offers, claims, ends, retries, pauses, cancellations."""

import pytest

from api.runs.deadlines import DEADLINES_S, KILL_GRACE_S, RUNNER_LEASE_S
from api.runs.end_reasons import MAX_FAILURES
from api.runs.errors import AttemptSuperseded, InvalidTransition, NothingToResume
from api.runs.status import RunStatus
from api.scheduling.finalize import tail_missing
from api.scheduling.outages.extensions import renew_runner_leases
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


def test_a_run_without_a_runner_waits_for_ever(stage: Stage) -> None:
    run_id = stage.submit()
    for _ in range(3):
        stage.later(86_400)
        stage.advance(run_id)
    assert stage.status(run_id) == "queued"
    assert stage.attempts(run_id) == []


def test_a_whole_run_goes_from_queued_to_succeeded_in_order(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.step(2, 1), make.saved(3, 3, final=True))
    stage.push(plan, make.ended(4))
    assert stage.status(run_id) == "finalizing"
    stage.end(runner_id, plan, last_seq=4)
    changes = [e.data["to"] for e in stage.events(run_id) if e.type == "run.status_changed"]
    assert changes == ["provisioning", "starting", "running", "finalizing", "succeeded"]
    run = stage.run(run_id)
    assert (run.end_code, run.due_at, run.ended_at) == ("completed", None, stage.now)


def test_a_finished_run_waits_for_the_end_of_its_events(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.end(runner_id, plan, last_seq=3)
    assert stage.status(run_id) == "running"
    assert tail_missing(stage.attempts(run_id)[0])
    stage.relay(run_id, make.step(2, 1), make.ended(3))
    assert stage.status(run_id) == "succeeded"


def test_a_tail_that_never_comes_is_a_failure_and_the_run_recovers(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.end(runner_id, plan, last_seq=9)
    stage.later(60)
    stage.advance(run_id)
    run = stage.run(run_id)
    assert (run.status, run.end_code, run.num_failures) == ("recovering", "finalize_timeout", 1)


@pytest.mark.parametrize(
    ("schedule", "silent_s"), [({}, 1800.0), ({"step_timeout_s": 7200.0}, 7500.0)]
)
def test_a_trainer_may_be_silent_for_longer_than_its_own_deadline_of_a_step(
    stage: Stage, schedule: dict[str, float], silent_s: float
) -> None:
    base = {"total_steps": 3, "train_batch_size": 2, "mini_batch_size": 1}
    run_id, _, _ = stage.running(make.step(2, 1), schedule={**base, **schedule})
    deadline = stage.run(run_id).deadline_at
    assert deadline is not None
    assert (deadline - stage.now).total_seconds() == silent_s


def test_slots_are_shared_in_order_of_submission(stage: Stage) -> None:
    runner_id = stage.register(slots=2)
    first, second, third = (stage.submit() for _ in range(3))
    stage.advance(third, second, first)
    assert [stage.status(r) for r in (first, second, third)] == [
        "provisioning",
        "provisioning",
        "queued",
    ]
    stage.claim(runner_id)
    stage.claim(runner_id)
    stage.advance(third)
    assert stage.status(third) == "queued"
    assert stage.claim(runner_id) is None


def test_a_dead_trainer_is_followed_by_an_attempt_from_the_newest_checkpoint(
    stage: Stage,
) -> None:
    run_id, runner_id, plan = stage.running(
        make.step(2, 1), make.saved(3, 1), make.step(4, 2), make.step(5, 3)
    )
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED, last_seq=5)
    assert stage.run(run_id).num_failures == 1
    again = stage.launch(run_id, runner_id)
    assert (again.attempt, again.resume_from) == (
        2,
        f"runs/{run_id}/checkpoints/global_step_1/attempt-1",
    )
    assert again.attempt_token != plan.attempt_token
    stage.push(again, make.started(1, resumed_from_step=1))
    rewound = next(e for e in stage.events(run_id) if e.type == "attempt.rewound")
    assert rewound.data == {"from_step": 1, "reached_step": 3, "attempt": 2}
    assert stage.run(run_id).progress_step == 1


def test_a_superseded_attempt_can_write_nothing(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    before = stage.run(run_id).last_seq
    with pytest.raises(AttemptSuperseded):
        stage.push(plan, make.step(2, 1))
    stage.launch(run_id, runner_id)
    with pytest.raises(AttemptSuperseded):
        stage.push(plan, make.step(2, 1))
    assert [e.type for e in stage.events(run_id)[before:]] == [
        "attempt.scheduled",
        "run.status_changed",
        "attempt.claimed",
        "run.status_changed",
    ]


def test_a_run_that_fails_often_enough_stops_trying(stage: Stage) -> None:
    runner_id = stage.register()
    run_id = stage.submit()
    for _ in range(MAX_FAILURES):
        assert stage.status(run_id) in ("queued", "recovering")
        plan = stage.launch(run_id, runner_id)
        stage.push(plan, make.started(1))
        stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    run = stage.run(run_id)
    assert (run.status, run.end_code) == ("failed", "trainer_crashed")
    assert run.end_message == "seen by the runner (the last of 3 failed attempts)"


def test_a_store_that_stays_away_pauses_a_run_instead_of_failing_it(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1))
    stage.end(runner_id, plan, ReasonCode.STORE_UNAVAILABLE)
    assert stage.run(run_id).num_failures == 0, "it has saved a checkpoint"
    for _ in range(MAX_FAILURES):
        assert stage.status(run_id) == "recovering"
        stage.end(runner_id, stage.launch(run_id, runner_id), ReasonCode.STORE_UNAVAILABLE)
    run = stage.run(run_id)
    assert (run.status, run.end_code) == ("paused", "store_unavailable")
    assert run.end_message == "seen by the runner (the last of 3 failed attempts)"
    assert stage.resume(run_id) == run_id
    again = stage.launch(run_id, runner_id)
    assert again.resume_from == f"runs/{run_id}/checkpoints/global_step_1/attempt-1"


def test_a_stopped_runner_costs_no_try_and_gets_the_run_back(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1))
    for _ in range(MAX_FAILURES + 1):
        stage.beat(runner_id, plan.attempt_id, draining=True)
        stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED)
        stage.advance(run_id)
        assert stage.status(run_id) == "recovering"
        stage.register()
        plan = stage.launch(run_id, runner_id)
    assert stage.run(run_id).num_failures == 0


def test_a_fault_of_the_spec_ends_the_run_at_once(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.push(plan, make.ended(2, ReasonCode.MODEL_UNAVAILABLE, "no such directory"))
    stage.end(runner_id, plan, ReasonCode.MODEL_UNAVAILABLE, last_seq=2)
    run = stage.run(run_id)
    assert (run.status, run.end_message) == ("failed", "no such directory")


def with_a_key_that_is_gone(run: Run) -> None:
    """As an update does that takes a key out of the spec."""
    run.spec = run.spec | {"rollout": run.spec["rollout"] | {"gone": 1}}


def test_a_waiting_run_whose_spec_an_update_refuses_fails_with_a_sentence(stage: Stage) -> None:
    stage.register()
    run_id = stage.submit()
    stage.change(run_id, with_a_key_that_is_gone)
    stage.advance(run_id)
    run = stage.run(run_id)
    assert (run.status, run.end_code, run.attempt) == ("failed", "spec_rejected", 0)
    assert "/rollout/gone: unknown key" in str(run.end_message)


def test_an_offer_that_an_update_refuses_keeps_no_other_run_back(stage: Stage) -> None:
    runner_id = stage.register(slots=2)
    refused, other = stage.submit(), stage.submit()
    for run_id in (refused, other):
        stage.later(1)
        stage.advance(run_id)
    stage.change(refused, with_a_key_that_is_gone)
    assert stage.claim(runner_id) is None
    run = stage.run(refused)
    assert (run.status, run.end_code) == ("failed", "spec_rejected")
    plan = stage.claim(runner_id)
    assert plan is not None
    assert plan.run_id == other


def test_an_outage_pauses_and_a_resume_goes_on_as_a_new_attempt(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.step(2, 2), make.saved(3, 2))
    stage.push(plan, make.ended(4, ReasonCode.ENVIRONMENT_OUTAGE, "booking is down"))
    assert stage.status(run_id) == "pausing"
    stage.end(runner_id, plan, ReasonCode.ENVIRONMENT_OUTAGE, last_seq=4)
    run = stage.run(run_id)
    assert (run.status, run.end_message, run.due_at) == ("paused", "booking is down", None)
    assert stage.resume(run_id) == run_id
    again = stage.launch(run_id, runner_id)
    assert again.attempt == 2
    assert again.resume_from is not None
    assert again.resume_from.endswith("global_step_2/attempt-1")
    assert stage.run(run_id).end_code is None


def test_a_queued_run_is_cancelled_at_once(stage: Stage) -> None:
    run_id = stage.submit()
    stage.cancel(run_id)
    assert stage.status(run_id) == "cancelled"
    assert stage.types(run_id) == ["run.created", "run.cancel_requested", "run.status_changed"]
    stage.cancel(run_id)
    assert len(stage.types(run_id)) == 3


def test_an_offered_run_is_cancelled_at_once_and_gives_its_slot_back(stage: Stage) -> None:
    runner_id = stage.register()
    first, second = stage.submit(), stage.submit()
    stage.advance(first)
    stage.cancel(first)
    assert stage.status(first) == "cancelled"
    assert stage.launch(second, runner_id).attempt == 1


def test_a_running_run_is_cancelled_when_its_trainer_has_left(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.cancel(run_id)
    assert stage.status(run_id) == "cancelling"
    commands = stage.beat(runner_id, plan.attempt_id).commands
    assert [(c.attempt_id, c.action) for c in commands] == [(plan.attempt_id, "stop")]
    stage.push(plan, make.saved(2, 1), make.ended(3, ReasonCode.RUNNER_STOPPED))
    stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED, last_seq=3)
    assert (stage.status(run_id), stage.run(run_id).end_code) == ("cancelled", "cancelled_by_user")


def test_a_trainer_that_does_not_leave_is_killed_then_given_up(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.cancel(run_id)
    stage.later(DEADLINES_S[RunStatus.CANCELLING] or 0)
    stage.beat(runner_id, plan.attempt_id)
    stage.advance(run_id)
    assert [c.action for c in stage.beat(runner_id, plan.attempt_id).commands] == ["kill"]
    stage.later(KILL_GRACE_S)
    stage.beat(runner_id, plan.attempt_id)
    stage.advance(run_id)
    assert stage.status(run_id) == "cancelled"


def test_a_run_that_finished_just_before_its_cancellation_has_succeeded(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.cancel(run_id)
    stage.push(plan, make.ended(2))
    stage.end(runner_id, plan, last_seq=2)
    assert stage.status(run_id) == "succeeded"


def test_a_finishing_run_cannot_be_cancelled(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    stage.push(plan, make.ended(2))
    with pytest.raises(InvalidTransition, match="nothing is left to cancel"):
        stage.cancel(run_id)


def test_an_unclaimed_offer_is_taken_back_without_a_failure(stage: Stage) -> None:
    stage.register()
    run_id = stage.submit()
    stage.advance(run_id)
    stage.later(DEADLINES_S[RunStatus.PROVISIONING] or 0)
    stage.advance(run_id)
    run = stage.run(run_id)
    assert (run.status, run.num_failures, stage.attempts(run_id)[0].end_code) == (
        "queued",
        0,
        "no_runner",
    )


@pytest.mark.parametrize("reason", [ReasonCode.START_TIMEOUT, ReasonCode.STALLED])
def test_a_silent_trainer_is_killed_and_named_for_its_silence(
    stage: Stage, reason: ReasonCode
) -> None:
    runner_id = stage.register()
    run_id = stage.submit()
    plan = stage.launch(run_id, runner_id)
    if reason is ReasonCode.STALLED:
        stage.push(plan, make.started(1))
    stage.later(DEADLINES_S[RunStatus(stage.status(run_id))] or 0)
    stage.beat(runner_id, plan.attempt_id)
    stage.advance(run_id)
    assert [c.action for c in stage.beat(runner_id, plan.attempt_id).commands] == ["kill"]
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    run = stage.run(run_id)
    assert (run.status, run.end_code, run.num_failures) == ("recovering", reason.value, 1)


def test_a_lost_runner_is_noticed_only_when_its_trainer_is_silent_too(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    stage.later(RUNNER_LEASE_S + 1)
    stage.push(plan, make.step(2, 1))
    stage.advance(run_id)
    assert stage.status(run_id) == "running"
    stage.later(RUNNER_LEASE_S + 1)
    stage.advance(run_id)
    run = stage.run(run_id)
    assert (run.status, run.end_code, run.num_failures) == ("recovering", "runner_lost", 1)


def lose_runner(stage: Stage, run_id: str) -> None:
    stage.later(RUNNER_LEASE_S + 1)
    stage.advance(run_id)
    stage.register()


def test_a_lost_runner_costs_no_try_while_each_attempt_saves_a_checkpoint(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    for attempt in range(1, MAX_FAILURES + 2):
        stage.push(plan, make.saved(2 if attempt == 1 else 1, attempt, attempt))
        lose_runner(stage, run_id)
        assert (stage.status(run_id), stage.run(run_id).num_failures) == ("recovering", 0)
        plan = stage.launch(run_id, runner_id)


def test_a_lost_runner_costs_a_validation_no_try_while_each_attempt_stores_rows(
    stage: Stage,
) -> None:
    runner_id, run_id = stage.register(), stage.submit(kind="validate")
    for attempt in range(1, MAX_FAILURES + 2):
        plan, left = stage.launch(run_id, runner_id), 100 - attempt
        told = [make.phase(n, "validate", left=left - n // 3) for n in (2, 3)]
        stage.push(plan, make.started(1), *told)
        lose_runner(stage, run_id)
        assert (stage.status(run_id), stage.run(run_id).num_failures) == ("recovering", 0)
    for failures in range(1, MAX_FAILURES + 1):
        plan = stage.launch(run_id, runner_id)
        told = [make.phase(n, "validate", left=50) for n in (2, 3)]
        stage.push(plan, make.started(1), *told)
        lose_runner(stage, run_id)
        assert stage.run(run_id).num_failures == failures
    assert stage.status(run_id) == "failed"


def test_a_run_that_loses_every_runner_before_a_checkpoint_stops_trying(stage: Stage) -> None:
    runner_id, run_id = stage.register(), stage.submit()
    for _ in range(MAX_FAILURES):
        stage.launch(run_id, runner_id)
        lose_runner(stage, run_id)
    run = stage.run(run_id)
    assert (run.status, run.end_code) == ("failed", "runner_lost")


def test_only_the_first_last_word_of_a_trainer_counts(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.ended(2))
    stage.push(plan, make.ended(3, ReasonCode.ENVIRONMENT_OUTAGE))
    stage.end(runner_id, plan, last_seq=3)
    assert stage.status(run_id) == "succeeded"


def test_an_outage_of_the_service_itself_does_not_count_against_a_runner(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.later(10 * RUNNER_LEASE_S)
    with stage.database.transaction() as session:
        renew_runner_leases(session, now=stage.now)
    stage.advance(run_id)
    assert stage.status(run_id) == "running"
    stage.later(RUNNER_LEASE_S - 1)
    assert stage.beat(runner_id, plan.attempt_id).commands == ()
    stage.later(RUNNER_LEASE_S + 1)
    stage.advance(run_id)
    assert stage.status(run_id) == "recovering"


def test_a_restarted_runner_keeps_what_it_names_and_loses_the_rest(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    assert stage.register(attempts=(plan.attempt_id,)) == runner_id
    assert stage.status(run_id) == "running"
    stage.register()
    assert stage.status(run_id) == "recovering"
    message = "The runner registered again without the trainer."
    assert stage.attempts(run_id)[0].end_message == message


def test_a_runner_is_told_to_kill_what_is_no_longer_its_own(stage: Stage) -> None:
    _, runner_id, plan = stage.running()
    stage.register()
    reply = stage.beat(runner_id, plan.attempt_id, "att_unknown")
    assert {c.action for c in reply.commands} == {"kill"}
    assert len(reply.commands) == 2


def test_the_report_of_an_end_may_be_repeated(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED)
    before = stage.types(run_id)
    stage.end(runner_id, plan, ReasonCode.COMPLETED)
    assert stage.types(run_id) == before


def test_an_ended_run_resumes_as_a_new_run_with_its_lineage(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1), make.saved(3, 2))
    stage.cancel(run_id)
    stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED)
    new_id = stage.resume(run_id)
    assert new_id != run_id
    assert stage.run(new_id).spec["lineage"] == {
        "resumed_from": {"run_id": run_id, "step": 2, "attempt": 1},
        "data_order": "continue",
        "forked_from": None,
    }
    again = stage.launch(new_id, runner_id)
    assert again.resume_from == f"runs/{run_id}/checkpoints/global_step_2/attempt-1"
    stage.push(again, make.started(1, resumed_from_step=2))
    assert "attempt.rewound" not in stage.types(new_id)


def test_a_step_that_hangs_pauses_the_run_and_a_run_out_of_time_fails(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1))
    said = "step 2 took longer than schedule.step_timeout_s (1500 s), in phase train: x"
    stage.push(plan, make.ended(3, ReasonCode.STEP_TIMEOUT, message=said))
    assert stage.status(run_id) == "pausing"
    stage.end(runner_id, plan, ReasonCode.STEP_TIMEOUT, last_seq=3)
    run = stage.run(run_id)
    assert (run.status, run.end_code, run.end_message) == ("paused", "step_timeout", said)
    assert stage.resume(run_id) == run_id
    again = stage.launch(run_id, runner_id)
    assert again.resume_from == f"runs/{run_id}/checkpoints/global_step_1/attempt-1"
    stage.push(again, make.started(1, resumed_from_step=1), make.saved(2, 2, attempt=2))
    stage.push(again, make.ended(3, ReasonCode.RUN_TIMEOUT))
    stage.end(runner_id, again, ReasonCode.RUN_TIMEOUT, last_seq=3)
    assert stage.run(run_id).end_code == "run_timeout"
    assert stage.status(run_id) == "failed"
    assert stage.resume(run_id) != run_id


def test_an_evaluation_of_a_checkpoint_is_a_run_that_ends_where_it_starts(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(make.saved(2, 1))
    stage.push(plan, make.ended(3))
    stage.end(runner_id, plan, last_seq=3)
    source = {"run_id": run_id, "step": 1, "attempt": 1}
    eval_id = stage.submit(kind="eval", lineage={"resumed_from": source})
    assert stage.run(eval_id).progress_total == 1
    plan = stage.launch(eval_id, runner_id)
    assert plan.spec.kind == "eval"
    assert plan.resume_from == f"runs/{run_id}/checkpoints/global_step_1/attempt-1"
    stage.push(plan, make.started(1, total_steps=1, resumed_from_step=1), make.evaluated(2, 1))
    stage.push(plan, make.ended(3, message="evaluated step 1"))
    stage.end(runner_id, plan, last_seq=3)
    run = stage.run(eval_id)
    assert (run.status, run.progress_step, run.progress_total) == ("succeeded", 1, 1)
    assert stage.run(stage.submit(kind="eval")).progress_total == 0


def test_a_run_without_a_checkpoint_cannot_be_resumed(stage: Stage) -> None:
    run_id = stage.submit()
    stage.cancel(run_id)
    with pytest.raises(NothingToResume, match="saved no checkpoint"):
        stage.resume(run_id)


def test_a_run_at_work_and_a_finished_one_cannot_be_resumed(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    with pytest.raises(InvalidTransition, match="only a paused or ended run"):
        stage.resume(run_id)
    stage.push(plan, make.ended(2))
    stage.end(runner_id, plan, last_seq=2)
    with pytest.raises(InvalidTransition, match="finished every step"):
        stage.resume(run_id)


@pytest.mark.parametrize("kind", ["eval", "probe", "validate", "preview"])
@pytest.mark.parametrize("finishes", [True, False])
def test_what_trains_nothing_has_nothing_to_resume(
    stage: Stage, kind: str, *, finishes: bool
) -> None:
    run_id, runner_id, plan = stage.running(kind=kind)
    if not finishes:
        stage.cancel(run_id)
    reason = ReasonCode.COMPLETED if finishes else ReasonCode.RUNNER_STOPPED
    stage.push(plan, make.ended(2, reason, "left"))
    stage.end(runner_id, plan, reason, last_seq=2)
    assert stage.status(run_id) == ("succeeded" if finishes else "cancelled")
    with pytest.raises(NothingToResume, match=f"of kind {kind}, which saves no checkpoints"):
        stage.resume(run_id)


def test_a_probe_that_was_paused_is_resumed_all_the_same(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running(kind="probe")
    stage.push(plan, make.ended(2, ReasonCode.STEP_TIMEOUT, "hangs"))
    stage.end(runner_id, plan, ReasonCode.STEP_TIMEOUT, last_seq=2)
    assert stage.resume(run_id) == run_id
