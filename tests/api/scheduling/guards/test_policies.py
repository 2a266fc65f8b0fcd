"""Policies of guards: an event, a pause or an end with a checkpoint; order, replay and rewinds."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from api.admission.lineage import resume
from api.runs import store
from api.runs.errors import AttemptSuperseded
from api.runs.status import RunStatus
from api.scheduling import control
from api.scheduling.limits.guards import trips
from api.scheduling.limits.guards.report import build_guards
from api.scheduling.record import record
from api.tables import GuardTrip, OutboxMessage
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import TrainerEnded
from tests.api.fixtures.story import Story
from tests.api.scheduling.guards.guarded import MIXED, OFF, Guarded

ALIKE = (0.0,) * 4


def signal(policy: str | None, steps: int = 2) -> dict[str, dict[str, object]]:
    return {"no_signal": {"steps": steps, "policy": policy}}


def test_an_alert_leaves_the_run_alone(story: Story) -> None:
    guarded = Guarded.begin(story, signal("alert"))
    guarded.steps([1, 2, 3], ALIKE)
    assert guarded.told == [("tripped", "no_signal", 2)]
    (event,) = guarded.events()
    assert (event.actor, event.attempt, event.data["action"]) == ("service", 1, "alert")
    assert guarded.run.status == RunStatus.RUNNING


def test_a_guard_without_a_policy_is_off(story: Story) -> None:
    guarded = Guarded.begin(story, signal(None))
    guarded.steps(range(1, 5), ALIKE)
    assert guarded.told == []
    state = guarded.state("no_signal")
    assert (state.status, state.evidence, state.next_check) == ("off", None, "")


def test_a_pause_keeps_the_guards_reason_and_goes_on_when_resumed(story: Story) -> None:
    guarded = Guarded.begin(story, signal("pause"))
    guarded.steps([1, 2], ALIKE)
    assert guarded.run.status == RunStatus.PAUSING
    guarded.push(story.checkpoint(guarded.run_id, 2))
    story.finish(guarded.run_id, 2, ReasonCode.RUNNER_STOPPED)
    run = guarded.run
    assert (run.status, run.end_code) == ("paused", "paused_by_guard")
    assert "2 steps in a row" in (run.end_message or "")
    resumed(guarded)
    guarded.steps([3, 4, 5], ALIKE)
    assert guarded.told == [("tripped", "no_signal", 2)], "the same episode pauses it once"
    guarded.steps([6], MIXED)
    guarded.steps([7, 8], ALIKE)
    assert guarded.told[1:] == [("cleared", "no_signal", 6), ("tripped", "no_signal", 8)]
    assert guarded.run.status == RunStatus.PAUSING


def resumed(guarded: Guarded) -> None:
    with guarded.story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        resume.resume(session, run, actor="key:me", now=guarded.story.now)
    guarded.story.launch(guarded.run_id)
    guarded.push(guarded.story.started(guarded.run_id, resumed_from=2))


def test_a_stop_ends_the_run_as_cancelled_with_its_checkpoint(story: Story) -> None:
    guarded = Guarded.begin(story, signal("stop"))
    guarded.steps([1, 2], ALIKE)
    assert guarded.run.status == RunStatus.CANCELLING
    guarded.push(story.checkpoint(guarded.run_id, 2))
    story.finish(guarded.run_id, 2, ReasonCode.RUNNER_STOPPED)
    run = guarded.run
    assert (run.status, run.end_code) == ("cancelled", "stopped_by_guard")
    assert (run.end_message or "").startswith("A guard tripped: no_signal: 2 steps in a row")
    with story.database.transaction() as session:
        checkpoint = store.newest_checkpoint(session, guarded.run_id)
    assert checkpoint is not None
    assert checkpoint.step == 2


def test_a_trainer_that_crashes_while_it_should_stop_is_not_started_again(story: Story) -> None:
    guarded = Guarded.begin(story, signal("stop"))
    guarded.steps([1, 2], ALIKE)
    story.report(guarded.run_id, ReasonCode.TRAINER_CRASHED)
    assert (guarded.run.status, guarded.run.end_code) == ("cancelled", "stopped_by_guard")


def test_a_user_who_cancels_a_run_that_a_guard_pauses_is_the_reason(story: Story) -> None:
    guarded = Guarded.begin(story, signal("pause"))
    guarded.steps([1, 2], ALIKE)
    with story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        control.cancel(session, run, actor="key:me", now=story.now)
    story.finish(guarded.run_id, 2, ReasonCode.RUNNER_STOPPED)
    assert (guarded.run.status, guarded.run.end_code) == ("cancelled", "cancelled_by_user")


def test_guards_trip_in_order_and_the_first_with_an_action_acts(story: Story) -> None:
    rate = {"window_rollouts": 8, "min_rollouts": 8, "max_rate": 0.1}
    guards = {
        "no_signal": {"steps": 2, "policy": "stop"},
        "ungraded": {**rate, "policy": "pause"},
        "infra_errors": {**rate, "policy": "alert"},
    }
    guarded = Guarded.begin(story, guards)
    guarded.push(
        guarded.step(1, (0.0, None, None, None), ungraded=4),
        guarded.step(2, (0.0, None, None, None), ungraded=4),
    )
    assert [each[1] for each in guarded.told] == ["infra_errors", "ungraded", "no_signal"]
    assert [each.data["action"] for each in guarded.events()] == ["alert", "pause", "alert"]
    assert [each.data["policy"] for each in guarded.events()] == ["alert", "pause", "stop"]
    assert (guarded.run.status, guarded.run.pause_code) == ("pausing", "paused_by_guard")


def test_a_batch_that_arrives_twice_trips_once(story: Story) -> None:
    guarded = Guarded.begin(story, signal("alert"))
    batch = [guarded.step(step, ALIKE) for step in (1, 2, 3)]
    guarded.push(*batch)
    seq = guarded.run.last_seq
    guarded.push(*batch)
    assert guarded.run.last_seq == seq
    assert guarded.told == [("tripped", "no_signal", 3)]


def test_the_database_has_room_for_one_open_episode_of_a_guard(story: Story) -> None:
    guarded = Guarded.begin(story, signal("alert"))
    guarded.steps([1, 2], ALIKE)
    with story.database.transaction() as session:
        (row,) = session.scalars(select(GuardTrip))
        evidence = guarded.state("no_signal").evidence
        assert evidence is not None
        run = store.lock_run(session, guarded.run_id)
        assert not trips.trip(session, run, "no_signal", "alert", evidence, now=story.now)
    values = {c.name: getattr(row, c.name) for c in GuardTrip.__table__.columns} | {"number": 2}
    with pytest.raises(IntegrityError), story.database.transaction() as session:
        session.add(GuardTrip(**values))


def test_late_events_of_a_superseded_attempt_trip_nothing(story: Story) -> None:
    guarded = Guarded.begin(story, signal("alert"))
    guarded.steps([1], ALIKE)
    late = guarded.step(2, ALIKE)
    story.seqs[guarded.run_id] -= 1
    guarded.crash()
    with story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        first = store.list_attempts(session, run.id)[0]
        with pytest.raises(AttemptSuperseded):
            record(session, run, first, [late], now=story.now)
    assert guarded.told == []


def test_the_tail_of_a_dead_attempt_trips_nothing(story: Story) -> None:
    guarded = Guarded.begin(story, signal("pause"))
    guarded.steps([1], ALIKE)
    tail = guarded.step(2, ALIKE)
    story.report(guarded.run_id, ReasonCode.TRAINER_CRASHED)
    with story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        attempt = store.newest_attempt(session, run)
        assert attempt is not None
        assert record(session, run, attempt, [tail], now=story.now).accepted == 1
    assert guarded.told == []


def test_a_rewound_run_is_judged_by_its_repeated_steps(story: Story) -> None:
    """Steps 2 and 3 of the first attempt no longer count once the second one repeats step 2."""
    guarded = Guarded.begin(story, signal("alert", steps=3))
    guarded.steps([1, 2, 3], ALIKE)
    assert guarded.told == [("tripped", "no_signal", 3)]
    guarded.crash()
    guarded.push(story.started(guarded.run_id, resumed_from=1))
    guarded.steps([2], MIXED)
    assert guarded.told[1:] == [("cleared", "no_signal", 2)]
    assert guarded.events()[-1].data["cause"] == "rewound"
    guarded.steps([3, 4], ALIKE)
    assert len(guarded.told) == 2, "step 3 of the first attempt is not counted twice"
    guarded.steps([5], ALIKE)
    assert guarded.told[2:] == [("tripped", "no_signal", 5)]


def test_nothing_trips_after_the_last_step_or_in_a_run_that_trains_nothing(story: Story) -> None:
    last = Guarded.begin(story, signal("stop"), steps=2)
    last.steps([1, 2], ALIKE)
    assert (last.told, last.run.status) == ([], RunStatus.RUNNING)
    evaluation = Guarded.begin(story, signal("stop"), kind="eval")
    with story.database.transaction() as session:
        run = store.get_run(session, "prj_story", evaluation.run_id)
        assert build_guards(session, run, now=story.now).guards == []


def test_a_run_stored_before_guards_has_none(story: Story) -> None:
    guarded = Guarded.begin(story, signal("stop"))
    with story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        run.spec = {key: value for key, value in run.spec.items() if key != "guards"}
    guarded.steps([1, 2, 3], ALIKE)
    assert (guarded.told, guarded.run.status) == ([], RunStatus.RUNNING)


def test_guards_that_another_version_stored_never_keep_events_from_being_stored(
    story: Story,
) -> None:
    guarded = Guarded.begin(story, signal("stop"))
    with story.database.transaction() as session:
        run = store.lock_run(session, guarded.run_id)
        run.spec = {**run.spec, "guards": {"no_signal": {"patience": 3}}}
    guarded.steps([1, 2, 3], ALIKE)
    assert (guarded.told, guarded.run.progress_step) == ([], 3)


def test_each_episode_is_one_message_to_slack(story: Story) -> None:
    notify = {"slack": {"channel": "#training"}}
    guarded = Guarded.begin(story, {**OFF, **signal("alert")}, notify=notify)
    guarded.steps([1, 2, 3], ALIKE)
    guarded.steps([4], MIXED)
    guarded.steps([5, 6], ALIKE)
    with story.database.transaction() as session:
        query = select(OutboxMessage.kind).order_by(OutboxMessage.id)
        assert list(session.scalars(query)) == ["opened", "started", "guard", "guard"]


def test_a_run_that_ends_by_itself_is_not_ended_by_a_guard(story: Story) -> None:
    guarded = Guarded.begin(story, signal("stop"), steps=3)
    guarded.steps([1, 2], ALIKE)
    guarded.push(
        TrainerEnded(
            **story.place(guarded.run_id, 3),
            reason=ReasonCode.COMPLETED,
            message="trained every step",
            training_seconds=1.0,
        )
    )
    story.report(guarded.run_id, ReasonCode.COMPLETED)
    assert guarded.run.status == "succeeded"
