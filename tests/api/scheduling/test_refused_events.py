"""An event that the database can never store is replaced under its number; the stream goes on."""

import random
import string
from collections.abc import Callable
from itertools import pairwise

import pytest

from api.tables import Metric, OutcomeRecord
from hillclimb.protocol.events import EXCERPT_CHARACTERS, Event
from hillclimb.protocol.refused_events import refuse
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make

LONG = "".join(random.Random(1).choices(string.ascii_letters, k=9_000))
"""Random text does not compress below the 2.7 kB of an index row."""
POISON: dict[str, Callable[[int], Event]] = {
    "metric": lambda seq: make.step(seq, 2, metrics={LONG: 1.0}),
    "decoding": lambda seq: make.evaluated(seq, 2, decoding=LONG),
    "rollout": lambda seq: make.step(seq, 2, make.outcome(LONG)),
    "task": lambda seq: make.step(seq, 2, make.outcome("a", task_key=LONG)),
    "step": lambda seq: make.saved(seq, 2**40),
    "tokens": lambda seq: make.step(seq, 2, make.outcome("a", num_tokens=2**70)),
}


@pytest.mark.parametrize("name", POISON)
def test_the_event_is_replaced_and_all_others_are_stored(stage: Stage, name: str) -> None:
    run_id, _, plan = stage.running()
    reply = stage.push(plan, make.step(2, 1), POISON[name](3), make.step(4, 3), make.saved(5, 3))
    assert (reply.accepted, reply.last_trainer_seq) == (4, 5)
    events = stage.events(run_id)
    assert [event.type for event in events[-4:]] == [
        "step.completed",
        "event.refused",
        "step.completed",
        "checkpoint.saved",
    ]
    assert all(after.seq == before.seq + 1 for before, after in pairwise(events))
    assert [e.trainer_seq for e in events if e.trainer_seq] == [1, 2, 3, 4, 5]
    data = events[-3].data
    assert data["refused_type"] == POISON[name](3).type
    assert data["size_bytes"] == len(POISON[name](3).model_dump_json())
    assert "cannot store it" in data["message"]
    assert len(data["excerpt"]) <= EXCERPT_CHARACTERS
    assert {metric.step for metric in stage.rows(Metric)} == {1, 3}
    assert stage.rows(OutcomeRecord) == []
    assert stage.run(run_id).progress_step == 3


def test_the_sentence_has_the_cause_and_not_the_value(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    stage.push(plan, POISON["metric"](2), POISON["tokens"](3))
    too_long, too_large = (event.data["message"] for event in stage.events(run_id)[-2:])
    assert "index row requires 9" in too_long
    assert too_large == "The database cannot store it: a value is out of range for type integer."
    assert LONG[:50] not in too_long


def test_placeholders_and_what_cannot_be_stored_may_come_together(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    earlier = refuse(make.step(2, 1).model_dump_json().encode(), trainer_seq=2, message="No.")
    assert stage.push(plan, earlier, POISON["metric"](3), make.phase(4)).accepted == 3
    assert stage.types(run_id)[-3:] == ["event.refused", "event.refused", "phase.started"]


def test_a_batch_of_nothing_else_is_stored_too(stage: Stage) -> None:
    run_id, _, plan = stage.running()
    reply = stage.push(plan, *(POISON["metric"](seq) for seq in range(2, 12)))
    assert reply.last_trainer_seq == 11
    assert stage.types(run_id)[-10:] == ["event.refused"] * 10
    assert stage.push(plan, POISON["metric"](11)).accepted == 0


def test_a_run_whose_last_event_is_refused_ends_by_the_runners_report(stage: Stage) -> None:
    run_id, runner_id, plan = stage.running()
    line = make.ended(2).model_dump_json().encode()
    stage.push(plan, refuse(line, trainer_seq=2, message="The service refused it."))
    assert stage.status(run_id) == "running"
    stage.end(runner_id, plan, last_seq=2)
    assert stage.status(run_id) == "succeeded"
    assert stage.types(run_id).count("event.refused") == 1
