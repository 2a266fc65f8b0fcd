"""Guards of quality, from ingested evaluations to the event: by verdicts, not by raw numbers."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.api.fixtures.story import Story
from tests.api.scheduling.guards.guarded import Guarded

TASKS = 200


def passing(number: int, *, shift: int = 0, tasks: int = TASKS) -> list[bool | None]:
    """So many of the tasks pass, beginning with the one at `shift`."""
    return [(task - shift) % tasks < number for task in range(tasks)]


def evaluated(guarded: Guarded, *passes: list[bool | None], every: int = 5) -> None:
    for number, each in enumerate(passes):
        if number:
            guarded.push(guarded.step(number * every))
        guarded.push(guarded.evaluation(number * every, each))


def wandering(number: int) -> list[list[bool | None]]:
    return [passing(100, shift=3 * (index % 2)) for index in range(number)]


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ({"evaluations": 2}, 10),
        ({"evaluations": 4}, 20),
        ({}, 25),
        ({"evaluations": 2, "min_gain": 0.01}, None),
    ],
)
def test_evaluations_without_one_that_is_improved_trip(
    story: Story, keys: dict[str, Any], step: int | None
) -> None:
    guarded = Guarded.begin(story, {"eval_flat": keys})
    evaluated(guarded, *wandering(7))
    assert guarded.told == ([("tripped", "eval_flat", step)] if step else [])


def test_an_evaluation_that_is_improved_clears(story: Story) -> None:
    guarded = Guarded.begin(story, {"eval_flat": {"evaluations": 2}})
    evaluated(guarded, *wandering(3), passing(140), passing(141), passing(140))
    assert guarded.told == [
        ("tripped", "eval_flat", 10),
        ("cleared", "eval_flat", 15),
        ("tripped", "eval_flat", 25),
    ]
    evidence = guarded.events()[0].data["evidence"]
    assert (evidence["first_step"], evidence["last_step"]) == (0, 10)
    assert evidence["figures"]["tasks"] == TASKS
    assert evidence["figures"]["detectable"] < 0.1
    assert "2 flat" in evidence["message"]


def test_a_rise_that_chance_explains_is_flat(story: Story) -> None:
    """+2 points, four gained and none lost: more passes, but not shown."""
    guarded = Guarded.begin(story, {"eval_flat": {"evaluations": 2}})
    evaluated(guarded, passing(100), passing(102), passing(104))
    assert guarded.told == [("tripped", "eval_flat", 10)]


def test_missing_outcomes_that_could_change_the_word_trip_nothing(story: Story) -> None:
    guarded = Guarded.begin(story, {"eval_flat": {"evaluations": 2}})
    holes: list[bool | None] = [None if task < 30 else task < 100 for task in range(TASKS)]
    evaluated(guarded, passing(100), holes, holes)
    assert guarded.told == []


def test_evaluations_under_another_decoding_are_not_counted(story: Story) -> None:
    guarded = Guarded.begin(story, {"eval_flat": {"evaluations": 1}})
    for step in (0, 5, 10):
        if step:
            guarded.push(guarded.step(step))
        event = guarded.evaluation(step, passing(100))
        rows = [
            row.model_copy(update={"decoding": "greedy", "rollout_id": f"g{row.rollout_id}"})
            for row in event.outcomes
        ]
        guarded.push(event.model_copy(update={"decoding": "greedy", "outcomes": tuple(rows)}))
    assert guarded.told == []


FALLING = [passing(100 - 4 * index) for index in range(8)]


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ({}, 20),
        ({"min_share_done": 0.8}, 35),
        ({"min_share_done": 0.0}, 15),
        ({"min_share_done": 0.0, "min_evaluations": 6}, 30),
    ],
)
def test_a_run_that_will_hardly_be_improved_trips(
    story: Story, keys: dict[str, Any], step: int | None
) -> None:
    guarded = Guarded.begin(story, {"hopeless": keys})
    evaluated(guarded, *FALLING)
    assert guarded.told == ([("tripped", "hopeless", step)] if step else [])


@pytest.mark.parametrize(("max_chance", "trips"), [(0.4, True), (0.01, False)])
def test_the_chance_is_compared_with_its_limit(
    story: Story, max_chance: float, trips: bool
) -> None:
    """Four evaluations after the first, without any gain: 12 % by the projection."""
    guarded = Guarded.begin(story, {"hopeless": {"max_chance": max_chance}})
    random = Random(2)
    passes = [[random.random() < 0.5 for _ in range(TASKS)] for _ in range(5)]
    evaluated(guarded, *passes)
    assert [each[:2] for each in guarded.told] == [("tripped", "hopeless")] * trips
    evidence = guarded.state("hopeless").evidence
    assert evidence is not None
    assert evidence.measured is not None
    assert evidence.measured == pytest.approx(0.123, abs=0.001)


def test_a_run_that_learns_late_is_armed_again(story: Story) -> None:
    guarded = Guarded.begin(story, {"hopeless": {}}, steps=60)
    rises = [passing(100 + 12 * index) for index in range(1, 6)]
    evaluated(guarded, *FALLING, *rises[:3], every=5)
    assert [each[:2] for each in guarded.told] == [("tripped", "hopeless"), ("cleared", "hopeless")]
    evidence = guarded.events()[0].data["evidence"]
    assert evidence["measured"] < 0.02
    assert evidence["figures"]["projected_high"] < evidence["figures"]["needed"]


def test_the_evaluation_after_the_last_step_trips_nothing(story: Story) -> None:
    guarded = Guarded.begin(story, {"hopeless": {}, "eval_flat": {"evaluations": 1}}, steps=5)
    evaluated(guarded, passing(100), passing(60))
    assert guarded.told == []
