"""Events that were never pushed come home from the blob store, once and in order."""

from sqlalchemy import func, select

from api.runs.attempts import TAIL_GRACE_S
from api.tables import RunEvent
from tests.worker.scene import Scene
from trainer.contract.reasons import ReasonCode
from worker import relay


def test_silent_trainers_events_are_fetched_from_where_the_service_stands(scene: Scene) -> None:
    run_id = scene.running()
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(2, 1))
    scene.mirror(run_id, 1, 2, scene.checkpoint(3, 2))
    assert relay.sweep(scene.parts, now=scene.now) == 0
    scene.later(relay.SILENCE_S + 1)
    assert relay.sweep(scene.parts, now=scene.now) == 2
    assert scene.types(run_id)[-2:] == ["checkpoint.saved", "checkpoint.saved"]
    assert relay.bring_home(scene.parts, run_id, 1, after=0) == 0


def test_relayed_and_pushed_events_meet_without_a_double_or_a_gap(scene: Scene) -> None:
    run_id = scene.running()
    made = [scene.checkpoint(n, n) for n in range(2, 8)]
    scene.push(*made[:3])
    scene.mirror(run_id, 1, 1, scene.started(1), *made)
    assert relay.bring_home(scene.parts, run_id, 1, after=1) == 3
    scene.push(*made)
    query = select(func.count(), func.max(RunEvent.seq)).where(RunEvent.run_id == run_id)
    with scene.parts.database.transaction() as session:
        count, last = session.execute(query).one()
    assert count == last
    assert scene.types(run_id).count("checkpoint.saved") == 6


def test_gap_in_the_segments_stops_the_relay_before_it(scene: Scene) -> None:
    run_id = scene.running()
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(3, 1))
    assert relay.bring_home(scene.parts, run_id, 1, after=1) == 0


def test_line_that_is_no_event_stops_the_relay_before_it(scene: Scene) -> None:
    run_id = scene.running()
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(2, 1))
    key = f"runs/{run_id}/attempt-1/events/000001.jsonl"
    scene.parts.store.put(key, scene.parts.store.get(key) + b'{"torn')
    assert relay.bring_home(scene.parts, run_id, 1, after=1) == 1


def test_event_that_cannot_be_stored_keeps_neither_the_run_nor_others_from_going_on(
    scene: Scene,
) -> None:
    run_id = scene.running()
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(2, 2**40))
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=2)
    assert relay.bring_home(scene.parts, run_id, 1, after=1) == 0
    scene.later(TAIL_GRACE_S + 1)
    assert scene.reconcile(run_id)
    assert scene.run(run_id).attempt == 2


def test_superseded_attempts_events_do_not_count(scene: Scene) -> None:
    run_id = scene.running()
    scene.report(ReasonCode.TRAINER_CRASHED, last_seq=1)
    scene.reconcile(run_id)
    scene.mirror(run_id, 1, 1, scene.started(1), scene.checkpoint(2, 1))
    assert relay.bring_home(scene.parts, run_id, 1, after=1) == 0
    assert "checkpoint.saved" not in scene.types(run_id)
