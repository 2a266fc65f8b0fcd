"""Guards of learning, from ingested steps to the event: every key changes when they trip."""

from __future__ import annotations

import pytest

from tests.api.fixtures.story import Story
from tests.api.scheduling.guards.guarded import MIXED, Guarded

ALIKE = ((0.0,) * 4, (1.0,) * 4)
DRIFT = "policy/rollout_train_logprobs_abs_diff_mean"
REWARD = "reward/avg_raw_reward"


@pytest.mark.parametrize("steps", [2, 4])
def test_steps_without_signal_trip_once_and_again_after_a_step_with_signal(
    story: Story, steps: int
) -> None:
    guarded = Guarded.begin(story, {"no_signal": {"steps": steps}})
    guarded.steps(range(1, 3), MIXED, *ALIKE)
    assert guarded.state("no_signal").needs == f"{steps} more steps without signal"
    guarded.steps(range(3, 8), *ALIKE)
    assert guarded.told == [("tripped", "no_signal", 2 + steps)]
    evidence = guarded.events()[0].data["evidence"]
    assert (evidence["measured"], evidence["threshold"]) == (steps, steps)
    assert (evidence["first_step"], evidence["last_step"]) == (3, 2 + steps)
    guarded.steps([8], MIXED)
    guarded.steps(range(9, 14), *ALIKE)
    assert guarded.told[1:] == [("cleared", "no_signal", 8), ("tripped", "no_signal", 8 + steps)]
    assert [each.data["number"] for each in guarded.events()] == [1, 1, 2]


def test_advantages_that_are_all_zero_are_no_signal_although_scores_differ(story: Story) -> None:
    guarded = Guarded.begin(story, {"no_signal": {"steps": 2}})
    guarded.steps([1, 2, 3], MIXED, metrics={"loss/avg_raw_advantages_abs": 0.0})
    assert guarded.told == [("tripped", "no_signal", 2)]


def test_a_group_with_one_grade_carries_no_signal(story: Story) -> None:
    guarded = Guarded.begin(story, {"no_signal": {"steps": 2}})
    guarded.steps([1, 2], (1.0, None, None, None))
    assert guarded.told == [("tripped", "no_signal", 2)]


@pytest.mark.parametrize(
    ("keys", "tripped"),
    [
        ({}, True),
        ({"max_diff": 0.3}, False),
        ({"window_steps": 8}, False),
        ({"window_steps": 3}, True),
    ],
)
def test_log_probs_that_drift_apart_trip_at_the_median_of_the_window(
    story: Story, keys: dict[str, float], tripped: bool
) -> None:
    guarded = Guarded.begin(story, {"logprob_drift": keys})
    for step, gap in enumerate((0.01, 0.01, 0.2, 0.25, 0.2, 0.2), 1):
        guarded.steps([step], metrics={DRIFT: gap})
    assert [each[:2] for each in guarded.told] == [("tripped", "logprob_drift")] * tripped


def test_one_step_far_apart_does_not_trip_and_agreement_clears(story: Story) -> None:
    guarded = Guarded.begin(story, {"logprob_drift": {"window_steps": 3}})
    for step, gap in enumerate((0.01, 0.01, 9.0, 0.01, 0.01, 9.0, 9.0, 0.01, 0.01), 1):
        guarded.steps([step], metrics={DRIFT: gap})
    assert guarded.told == [("tripped", "logprob_drift", 7), ("cleared", "logprob_drift", 9)]
    evidence = guarded.events()[0].data["evidence"]
    assert (evidence["measured"], evidence["n"], evidence["unit"]) == (9.0, 3, "nat")


FALL = [0.50, 0.52, 0.48, 0.51, 0.49, 0.5, 0.10, 0.12, 0.08, 0.11, 0.09, 0.1]


@pytest.mark.parametrize(
    ("keys", "step"),
    [
        ({"window_steps": 3}, 12),
        ({"window_steps": 6}, 12),
        ({"window_steps": 3, "min_drop": 0.45}, None),
        ({"window_steps": 3, "max_p": 1e-9}, None),
    ],
)
def test_a_reward_that_falls_significantly_trips(
    story: Story, keys: dict[str, float], step: int | None
) -> None:
    guarded = Guarded.begin(story, {"reward_collapse": keys})
    for number, reward in enumerate(FALL, 1):
        guarded.steps([number], metrics={REWARD: reward})
    assert guarded.told == ([("tripped", "reward_collapse", step)] if step else [])


def test_a_collapse_shows_both_windows_and_clears_when_the_reward_is_back(story: Story) -> None:
    guarded = Guarded.begin(story, {"reward_collapse": {"window_steps": 3}})
    for number, reward in enumerate([*FALL, 0.5, 0.5, 0.5], 1):
        guarded.steps([number], metrics={REWARD: reward})
    assert guarded.told == [
        ("tripped", "reward_collapse", 12),
        ("cleared", "reward_collapse", 15),
    ]
    evidence = guarded.events()[0].data["evidence"]
    assert evidence["figures"]["newest"] == pytest.approx(0.1, abs=0.01)
    assert evidence["figures"]["best"] == pytest.approx(0.5, abs=0.01)
    assert evidence["measured"] < evidence["threshold"] == 0.001
    assert "Welch's test" in evidence["message"]


def test_a_noisy_reward_does_not_collapse(story: Story) -> None:
    guarded = Guarded.begin(story, {"reward_collapse": {"window_steps": 3}})
    for number, reward in enumerate([0.9, 0.2, 0.6, 0.7, 0.1, 0.3, 0.4, 0.1, 0.2], 1):
        guarded.steps([number], metrics={REWARD: reward})
    assert guarded.told == []
    assert guarded.state("reward_collapse").status == "armed"
