"""Events that were never pushed come home from the blob store, once and in order."""

from sqlalchemy import func, select

from api.tables import RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from tests.worker.run_simulation import RunSimulation
from worker.runs import relay


def test_silent_trainers_events_are_fetched_from_where_the_service_stands(
    sim: RunSimulation,
) -> None:
    run_id = sim.running()
    sim.mirror(run_id, 1, 1, sim.started(1), sim.checkpoint(2, 1))
    sim.mirror(run_id, 1, 2, sim.checkpoint(3, 2))
    assert relay.sweep(sim.context, now=sim.now) == 0
    sim.advance(relay.TRAINER_SILENCE_S + 1)
    assert relay.sweep(sim.context, now=sim.now) == 2
    assert sim.types(run_id)[-2:] == ["checkpoint.saved", "checkpoint.saved"]
    assert relay.recover_tail(sim.context, run_id, 1, after=0) == 0


def test_relayed_and_pushed_events_meet_without_a_double_or_a_gap(sim: RunSimulation) -> None:
    run_id = sim.running()
    made = [sim.checkpoint(n, n) for n in range(2, 8)]
    sim.push(*made[:3])
    sim.mirror(run_id, 1, 1, sim.started(1), *made)
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 3
    sim.push(*made)
    query = select(func.count(), func.max(RunEvent.seq)).where(RunEvent.run_id == run_id)
    with sim.context.database.transaction() as session:
        count, last = session.execute(query).one()
    assert count == last
    assert sim.types(run_id).count("checkpoint.saved") == 6


def test_gap_in_the_segments_stops_the_relay_before_it(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.mirror(run_id, 1, 1, sim.started(1), sim.checkpoint(3, 1))
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 0


def test_line_that_is_no_event_stops_the_relay_before_it(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.mirror(run_id, 1, 1, sim.started(1), sim.checkpoint(2, 1))
    key = f"runs/{run_id}/attempt-1/events/000001.jsonl"
    sim.context.store.put(key, sim.context.store.get(key) + b'{"torn')
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 1


def test_line_of_another_kind_of_event_is_refused_and_the_rest_recorded(sim: RunSimulation) -> None:
    run_id = sim.running()
    unknown = sim.checkpoint(2, 1).model_dump_json().replace("checkpoint.saved", "moon.landed")
    lines = [sim.started(1).model_dump_json(), unknown, sim.checkpoint(3, 2).model_dump_json()]
    key = f"runs/{run_id}/attempt-1/events/000001.jsonl"
    sim.context.store.put(key, "\n".join(lines).encode())
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 2
    assert sim.types(run_id)[-2:] == ["event.refused", "checkpoint.saved"]


def test_line_of_a_newer_schema_stops_the_relay_before_it(sim: RunSimulation) -> None:
    run_id = sim.running()
    newer = sim.checkpoint(2, 1).model_dump_json().replace("{", '{"new_field": 1, ', 1)
    newer = newer.replace('"schema_version":1', '"schema_version":2')
    key = f"runs/{run_id}/attempt-1/events/000001.jsonl"
    sim.context.store.put(key, f"{sim.started(1).model_dump_json()}\n{newer}".encode())
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 0
    assert "event.refused" not in sim.types(run_id)


def test_event_that_cannot_be_stored_keeps_neither_the_run_nor_others_from_going_on(
    sim: RunSimulation,
) -> None:
    run_id = sim.running()
    made = [sim.started(1), sim.checkpoint(2, 2**40), sim.checkpoint(3, 1)]
    sim.mirror(run_id, 1, 1, *made)
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=3)
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 2
    assert sim.types(run_id).count("event.refused") == 1
    assert sim.types(run_id).count("checkpoint.saved") == 1
    assert sim.reconcile(run_id)
    assert sim.run(run_id).attempt == 2


def test_superseded_attempts_events_do_not_count(sim: RunSimulation) -> None:
    run_id = sim.running()
    sim.report(ReasonCode.TRAINER_CRASHED, last_seq=1)
    sim.reconcile(run_id)
    sim.mirror(run_id, 1, 1, sim.started(1), sim.checkpoint(2, 1))
    assert relay.recover_tail(sim.context, run_id, 1, after=1) == 0
    assert "checkpoint.saved" not in sim.types(run_id)
