"""A user's pause, in every status a run may be in, and what may come in between."""

from __future__ import annotations

import pytest

from api.runs.deadlines import DEADLINES_S, KILL_GRACE_S
from api.runs.errors import InvalidTransition
from api.runs.status import RunStatus
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make


def test_a_run_that_waits_rests_at_once_and_keeps_nobody_waiting(stage: Stage) -> None:
    runner_id = stage.register()
    first, second = stage.submit(), stage.submit()
    stage.pause(first)
    assert (stage.status(first), stage.run(first).end_code) == ("paused", "paused_by_user")
    stage.pause(first)
    assert stage.types(first) == ["run.created", "run.pause_requested", "run.status_changed"]
    assert stage.launch(second, runner_id).attempt == 1


def test_an_offered_run_gives_its_slot_back(stage: Stage) -> None:
    runner_id = stage.register()
    first, second = stage.submit(), stage.submit()
    stage.advance(first)
    stage.pause(first)
    assert stage.status(first) == "paused"
    assert stage.launch(second, runner_id).attempt == 1


def test_a_running_run_rests_when_its_trainer_has_saved_and_left(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    assert stage.status(run_id) == "pausing"
    assert [c.action for c in stage.beat(runner_id, plan.attempt_id).commands] == ["stop"]
    stage.push(plan, make.saved(2, 1), make.ended(3, ReasonCode.RUNNER_STOPPED))
    stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED, last_seq=3)
    assert (stage.status(run_id), stage.run(run_id).end_code) == ("paused", "paused_by_user")
    assert stage.resume(run_id) == run_id
    again = stage.launch(run_id, runner_id)
    assert again.resume_from is not None
    assert again.resume_from.endswith("global_step_1/attempt-1")
    assert stage.run(run_id).desired_state == "running"


def test_a_run_that_starts_does_not_begin_to_run_after_its_pause(stage: Stage) -> None:
    runner_id = stage.register()
    run_id = stage.submit()
    plan = stage.launch(run_id, runner_id)
    stage.pause(run_id)
    stage.push(plan, make.started(1))
    assert stage.status(run_id) == "pausing"
    stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED, last_seq=1)
    assert stage.status(run_id) == "paused"


def test_a_trainer_that_crashes_while_it_should_leave_is_not_started_again(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    stage.end(runner_id, plan, ReasonCode.TRAINER_CRASHED, last_seq=1)
    assert stage.status(run_id) == "paused"


def test_a_trainer_that_does_not_leave_is_killed_and_the_run_rests(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    stage.later(DEADLINES_S[RunStatus.PAUSING] or 0)
    stage.beat(runner_id, plan.attempt_id)
    stage.advance(run_id)
    assert [c.action for c in stage.beat(runner_id, plan.attempt_id).commands] == ["kill"]
    stage.later(KILL_GRACE_S)
    stage.beat(runner_id, plan.attempt_id)
    stage.advance(run_id)
    assert (stage.status(run_id), stage.run(run_id).end_code) == ("paused", "paused_by_user")


def test_what_cannot_go_on_is_not_paused_but_failed(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    stage.push(plan, make.ended(2, ReasonCode.NON_FINITE_UPDATE))
    stage.end(runner_id, plan, ReasonCode.NON_FINITE_UPDATE, last_seq=2)
    assert (stage.status(run_id), stage.run(run_id).end_code) == ("failed", "non_finite_update")


def test_what_finished_meanwhile_has_succeeded(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    stage.push(plan, make.ended(2, ReasonCode.COMPLETED))
    stage.end(runner_id, plan, ReasonCode.COMPLETED, last_seq=2)
    assert stage.status(run_id) == "succeeded"


def test_a_pause_can_be_followed_by_a_cancellation_but_not_the_other_way(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.pause(run_id)
    stage.cancel(run_id)
    assert stage.status(run_id) == "cancelling"
    with pytest.raises(InvalidTransition, match="is being cancelled"):
        stage.pause(run_id)
    stage.end(runner_id, plan, ReasonCode.RUNNER_STOPPED, last_seq=1)
    assert stage.status(run_id) == "cancelled"
    with pytest.raises(InvalidTransition, match="has ended"):
        stage.pause(run_id)


def test_an_outage_that_already_pauses_the_run_keeps_its_reason(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    stage.push(plan, make.ended(2, ReasonCode.ENVIRONMENT_OUTAGE, "booking is down"))
    assert stage.status(run_id) == "pausing"
    stage.pause(run_id)
    stage.end(runner_id, plan, ReasonCode.ENVIRONMENT_OUTAGE, last_seq=2)
    assert stage.run(run_id).end_code == "environment_outage"
