"""Guards of liveness, from ingested steps to the event: every key changes when they trip."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.fixtures.story import Story
from tests.api.scheduling.guards.guarded import MIXED, Guarded

FAILING = (1.0, None, 0.0, None)
"""Half of these rollouts end in an infra error."""


@pytest.mark.parametrize(
    ("keys", "tripped"),
    [
        ({}, True),
        ({"max_rate": 0.45}, False),
        ({"min_rollouts": 150}, False),
        ({"window_rollouts": 4, "min_rollouts": 4}, False),
    ],
)
def test_infra_errors_trip_once_their_interval_lies_above_the_limit(
    story: Story, keys: dict[str, Any], tripped: bool
) -> None:
    """120 rollouts, 60 of them infra errors: 41.2 to 58.8 %; of the newest 4, 15 to 85 %."""
    guarded = Guarded.begin(story, {"infra_errors": keys})
    guarded.steps(range(1, 31), FAILING)
    assert [each[:2] for each in guarded.told] == [("tripped", "infra_errors")] * tripped


def test_the_window_is_that_of_the_newest_rollouts(story: Story) -> None:
    keys = {"window_rollouts": 20, "min_rollouts": 20}
    guarded = Guarded.begin(story, {"infra_errors": keys})
    guarded.steps(range(1, 7), FAILING)
    guarded.steps(range(7, 9), MIXED)
    assert guarded.told == [("tripped", "infra_errors", 5)]
    guarded.steps([9], MIXED)
    assert guarded.told[1:] == [("cleared", "infra_errors", 9)]
    evidence = guarded.events()[0].data["evidence"]
    assert (evidence["measured"], evidence["n"], evidence["items"]) == (0.5, 20, "rollouts")
    assert (evidence["low"], evidence["high"]) == pytest.approx((0.299, 0.701), abs=1e-3)
    assert (evidence["first_step"], evidence["last_step"]) == (1, 5)


def test_missing_grades_have_a_guard_of_their_own(story: Story) -> None:
    keys = {"max_rate": 0.1, "window_rollouts": 40, "min_rollouts": 20}
    guards = {"ungraded": keys, "infra_errors": keys}
    guarded = Guarded.begin(story, guards)
    guarded.steps(range(1, 6), MIXED, ungraded=4)
    assert {each[1] for each in guarded.told} == {"ungraded"}
    assert guarded.state("infra_errors").evidence is not None
    assert guarded.state("infra_errors").evidence.measured == 0.0


@pytest.mark.parametrize(
    ("keys", "tripped"),
    [
        ({"max_rate": 0.45}, False),
        ({"min_rollouts": 150}, False),
        ({"window_rollouts": 7, "min_rollouts": 7}, False),
        ({}, True),
    ],
)
def test_the_keys_of_missing_grades_are_read(
    story: Story, keys: dict[str, Any], tripped: bool
) -> None:
    guarded = Guarded.begin(story, {"ungraded": keys})
    guarded.steps(range(1, 16), MIXED, ungraded=3)
    assert [each[:2] for each in guarded.told] == [("tripped", "ungraded")] * tripped


def timings(busy_s: float, learner_s: float = 0.2) -> dict[str, float]:
    return {
        "timing/step": 10.0,
        "timing/engine_busy": busy_s,
        "timing/policy_train": learner_s / 2,
        "timing/fwd_logprobs_values_reward": learner_s / 2,
    }


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ({"window_steps": 3}, 3),
        ({"window_steps": 5}, 5),
        ({}, None),
        ({"window_steps": 3, "max_idle_share": 0.95}, None),
    ],
)
def test_engines_and_learner_that_wait_trip(
    story: Story, keys: dict[str, Any], step: int | None
) -> None:
    guarded = Guarded.begin(story, {"idle_gpus": keys})
    guarded.steps(range(1, 7), metrics=timings(0.4))
    assert guarded.told == ([("tripped", "idle_gpus", step)] if step else [])


def test_the_busy_time_of_several_engines_is_averaged(story: Story) -> None:
    """Eight seconds of one engine are work; of sixteen engines they are half a second each."""
    keys = {"idle_gpus": {"window_steps": 2}}
    busy = Guarded.begin(story, keys)
    busy.steps([1, 2], metrics=timings(8.0))
    many = Guarded.begin(story, keys, engine={"data_parallel_size": 16}, placement={"type": "ray"})
    many.steps([1, 2], metrics=timings(8.0))
    assert (busy.told, many.told) == ([], [("tripped", "idle_gpus", 2)])
    evidence = many.events()[0].data["evidence"]
    assert evidence["measured"] == pytest.approx(1.0 - (8.0 / 16 + 0.2) / 10.0)


def test_work_clears_and_steps_without_timings_are_waited_for(story: Story) -> None:
    guarded = Guarded.begin(story, {"idle_gpus": {"window_steps": 2}})
    guarded.steps([1])
    state = guarded.state("idle_gpus")
    assert (state.status, state.needs) == ("waiting", "2 more steps with timings")
    guarded.steps([2, 3], metrics=timings(0.0))
    guarded.steps([4], metrics=timings(9.0))
    assert guarded.told == [("tripped", "idle_gpus", 3), ("cleared", "idle_gpus", 4)]
