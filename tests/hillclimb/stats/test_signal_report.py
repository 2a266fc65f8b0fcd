"""The signal report against counts made by hand, and every reading at its border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import linear_regression

import pytest

from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.stats.intervals import wilson
from hillclimb.stats.signal_report import (
    LOW_SIGNAL_RATIO,
    LOW_SIGNAL_STEPS,
    MIN_TREND_STEPS,
    UNCLIPPED,
    SignalReading,
    StepSignal,
    report_signal,
    step_signals,
)
from tests.hillclimb.stats.test_pass_rate import row


def group(task: str, scores: Sequence[float | None], *, first: int = 0) -> list[OutcomeRow]:
    return [row(task, score, sample=first + at) for at, score in enumerate(scores)]


def counts(
    step: int,
    *,
    mixed: int = 0,
    zero: int = 0,
    one: int = 0,
    mean: float = 0.5,
    env: str = "booking",
) -> StepSignal:
    """Groups of four; the mean score is that of the step, whatever the groups say."""
    groups = mixed + zero + one
    return StepSignal(
        step=step, env_key=env, num_rollouts=4 * groups, num_graded=4 * groups,
        score_sum=4 * groups * mean, num_groups=groups, num_mixed=mixed, num_all_zero=zero,
        num_all_one=one, variance_sum=0.25 * mixed,
    )  # fmt: skip


def test_a_steps_groups_are_counted_per_environment() -> None:
    rows = [
        *group("a", [1.0, 0.0, 0.0, 0.0]),
        *group("b", [1.0, 1.0, 1.0, 1.0]),
        *group("c", [0.0, 0.0, None, None]),
        *group("d", [0.5, 0.5, 0.5, 0.5]),
        *group("e", [1.0, None, None, None]),
    ]
    (found,) = step_signals(3, rows, group_size=4)
    assert found == StepSignal(
        step=3, env_key="booking", num_rollouts=20, num_graded=15, score_sum=8.0, num_groups=4,
        num_mixed=1, num_all_zero=1, num_all_one=1, variance_sum=0.1875,
    )  # fmt: skip


def test_a_task_that_a_step_draws_twice_has_two_groups() -> None:
    """Together they would differ; each by itself does not."""
    rows = [*group("a", [1.0, 1.0]), *group("a", [0.0, 0.0], first=2)]
    (found,) = step_signals(1, rows, group_size=2)
    assert (found.num_groups, found.num_mixed) == (2, 0)
    assert (found.num_all_zero, found.num_all_one) == (1, 1)


def test_groups_that_agree_on_half_a_reward_are_neither_saturated_nor_too_hard() -> None:
    rows = [*group("a", [0.5, 0.5]), *group("b", [0.5, 0.5])]
    found = report_signal(step_signals(1, rows, group_size=2), clip_ratio=None)
    assert found.reading is SignalReading.SPLIT
    assert found.why == (
        "0% of groups and 0% of steps have signal; 0% pass and 0% fail as a whole: train on other"
        " tasks"
    )


def test_a_score_of_a_rollout_that_failed_is_no_grade() -> None:
    """Whatever the environment wrote before it broke."""
    failed = row("a", None, sample=2).model_copy(update={"score": 1.0})
    (found,) = step_signals(1, [*group("a", [0.0, 0.0]), failed], group_size=4)
    assert (found.num_graded, found.num_mixed, found.num_all_zero) == (2, 0, 1)


def test_scores_count_as_zero_and_one_up_to_rounding() -> None:
    rows = [
        *group("a", [1e-9, 1e-9]),
        *group("b", [1.0 - 1e-9, 1.0 - 1e-9]),
        *group("c", [1e-6, 1e-6]),
        *group("d", [1.0 - 1e-6, 1.0 - 1e-6]),
        *group("e", [-1.0, 1.0]),  # on average 0, and a gradient
    ]
    (found,) = step_signals(1, rows, group_size=2)
    assert (found.num_groups, found.num_mixed) == (5, 1)
    assert (found.num_all_zero, found.num_all_one) == (1, 1)


def test_without_groups_nothing_is_known() -> None:
    found = report_signal([counts(1)], clip_ratio=None)
    assert (found.signal_ratio, found.signal_steps, found.mean_score) == (None, None, None)
    assert (found.signal_ratio_low, found.signal_ratio_high) == (0.0, 1.0)
    assert (found.coverage, found.variance_per_prompt, found.trend) == (0.0, None, None)
    assert not found.is_below_border


def test_the_score_is_the_mean_over_grades_and_coverage_their_share() -> None:
    """Twelve grades of which four are 0.25 and eight 0.625: 0.5. Twelve of 16 rollouts."""
    steps = [
        replace(counts(1, mixed=1, mean=0.25), num_rollouts=8),
        counts(2, mixed=2, mean=0.625),
    ]
    found = report_signal(steps, clip_ratio=None)
    assert (found.mean_score, found.coverage) == (0.5, 0.75)


def test_shares_are_of_groups_and_steps_with_two_grades() -> None:
    steps = [
        counts(1, mixed=1, zero=2, one=1),
        counts(2, zero=4),
        counts(3),
        counts(4, mixed=2, one=2),
    ]
    found = report_signal(steps, clip_ratio=0.1)
    assert (found.num_steps, found.num_groups) == (3, 12)
    assert found.signal_steps == pytest.approx(2 / 3)
    assert found.signal_ratio == pytest.approx(3 / 12)
    assert (found.all_zero_ratio, found.all_one_ratio) == (pytest.approx(0.5), pytest.approx(0.25))
    assert found.variance_per_prompt == pytest.approx(0.25 * 3 / 12)
    assert (found.signal_ratio_low, found.signal_ratio_high) == wilson(3 / 12, 12)
    assert not found.is_below_border


def test_a_step_has_signal_if_any_environment_has() -> None:
    steps = [counts(1, mixed=1), counts(1, zero=3, env="github"), counts(2, zero=1)]
    assert report_signal(steps, clip_ratio=None).signal_steps == 0.5


@pytest.mark.parametrize(
    ("steps", "clip_ratio", "reading", "says"),
    [
        ([], None, SignalReading.NO_GRADES, "look at the infra errors"),
        ([counts(1)], None, SignalReading.NO_GRADES, "look at the infra errors"),
        (
            [counts(s, one=4) for s in range(4)],
            None,
            SignalReading.SATURATED,
            "100% pass as a whole",
        ),
        (
            [counts(s, zero=4) for s in range(4)],
            None,
            SignalReading.TOO_HARD,
            "100% fail as a whole",
        ),
        ([counts(s, zero=2, one=2) for s in range(4)], None, SignalReading.SPLIT, "50% fail"),
        ([counts(s, zero=3, one=2) for s in range(4)], None, SignalReading.SPLIT, "60% fail"),
        ([counts(s, zero=4, one=2) for s in range(4)], None, SignalReading.TOO_HARD, "67% fail"),
        ([counts(s, zero=2, one=4) for s in range(4)], None, SignalReading.SATURATED, "67% pass"),
        ([counts(s, mixed=1) for s in range(6)], None, SignalReading.NOT_MOVING, "by +0.00"),
        ([counts(s, zero=1, mean=0.0) for s in range(6)], None, SignalReading.TOO_HARD, "100%"),
        ([counts(s, mixed=2, one=2) for s in range(4)], 0.05, SignalReading.NOT_MOVING, "no trend"),
        (
            [counts(s, mixed=2) for s in range(4)],
            UNCLIPPED,
            SignalReading.UNCLIPPED,
            "raise the learning",
        ),
        (
            [counts(s, mixed=2) for s in range(4)],
            1.1 * UNCLIPPED,
            SignalReading.NOT_MOVING,
            "no trend",
        ),
        ([counts(s, mixed=2) for s in range(4)], None, SignalReading.NOT_MOVING, "no trend"),
    ],
)
def test_what_the_figures_say(
    steps: list[StepSignal], clip_ratio: float | None, reading: SignalReading, says: str
) -> None:
    found = report_signal(steps, clip_ratio=clip_ratio)
    assert found.reading is reading
    assert says in found.why


@pytest.mark.parametrize(
    ("sign", "reading"), [(1, SignalReading.LEARNING), (-1, SignalReading.FALLING)]
)
def test_scores_that_move_beyond_their_noise_are_learning_or_falling(
    sign: int, reading: SignalReading
) -> None:
    means = [0.30, 0.33, 0.34, 0.38, 0.40, 0.41]
    steps = [counts(s, mixed=2, mean=0.5 + sign * (m - 0.35)) for s, m in enumerate(means, 1)]
    found = report_signal(steps, clip_ratio=0.0)
    assert found.reading is reading
    noisy = [counts(s, mixed=2, mean=m) for s, m in enumerate([0.3, 0.5, 0.2, 0.6, 0.3, 0.5], 1)]
    assert report_signal(noisy, clip_ratio=0.0).reading is SignalReading.UNCLIPPED


def test_the_sentence_has_the_figures_of_the_trend_and_of_the_updates() -> None:
    """The slope is 0.1 per step, give or take 1.96 times its error sqrt(0.04 / 30)."""
    means = [0.1, 0.4, 0.4, 0.6, 0.5]
    rising = report_signal(
        [counts(s, mixed=1, zero=1, mean=m) for s, m in enumerate(means)], clip_ratio=0.0
    )
    assert rising.why == (
        "50% of groups and 100% of steps have signal; the mean score changes by +10.00 points per"
        " step (+2.84 to +17.16)"
    )
    still = [counts(1, mixed=1), counts(2, zero=1)]
    unclipped = "signal, fewer than 5 steps have no trend, and {} of tokens are clipped"
    for clip_ratio, clipped in ((UNCLIPPED, "0.10%"), (0.0, "0.00%")):
        why = report_signal(still, clip_ratio=clip_ratio).why
        assert unclipped.format(clipped) in why


def test_a_step_in_four_with_signal_is_the_border() -> None:
    at = [counts(s, mixed=int(s == 1), zero=1) for s in range(1, 5)]
    below = [*at, counts(5, zero=1)]
    assert LOW_SIGNAL_STEPS == 0.25
    assert not report_signal(at, clip_ratio=None).is_below_border
    assert report_signal(at, clip_ratio=None).reading is SignalReading.NOT_MOVING
    assert report_signal(below, clip_ratio=None).is_below_border
    assert report_signal(below, clip_ratio=None).reading is SignalReading.TOO_HARD


def test_many_groups_per_step_do_not_hide_how_few_have_signal() -> None:
    """Every step has signal, in one group of ten, and in one of eleven."""
    assert LOW_SIGNAL_RATIO == 0.1
    ten = [counts(s, mixed=1, zero=9) for s in range(3)]
    eleven = [counts(s, mixed=1, zero=10) for s in range(3)]
    assert report_signal(ten, clip_ratio=None).reading is SignalReading.NOT_MOVING
    assert report_signal(eleven, clip_ratio=None).reading is SignalReading.TOO_HARD
    assert report_signal(eleven, clip_ratio=None).signal_steps == 1.0


def test_the_trend_is_the_least_squares_line_with_its_standard_error() -> None:
    """Slope 0.1, residuals -0.1, 0.1, 0, 0.1, -0.1: s² = 0.04 / 3 over sxx = 10."""
    means = [0.1, 0.4, 0.4, 0.6, 0.5]
    found = report_signal(
        [counts(s, mixed=1, mean=m) for s, m in enumerate(means)], clip_ratio=None
    ).trend
    assert found is not None
    line = linear_regression(range(5), means)
    assert found.slope == pytest.approx(line.slope) == pytest.approx(0.1)
    error = sum((m - line.intercept - line.slope * s) ** 2 for s, m in enumerate(means)) / 3 / 10
    assert found.high - found.low == pytest.approx(2 * 1.959963984540054 * error**0.5)
    assert found.high - found.slope == pytest.approx(found.slope - found.low)


def test_a_step_with_more_grades_weighs_more() -> None:
    """The middle of three steps counts twice: as if it were there twice."""
    once = [counts(s, mixed=1, mean=m) for s, m in enumerate([0.1, 0.2, 0.6, 0.3, 0.5])]
    twice = [*once, counts(2, mixed=1, mean=0.6)]
    found = report_signal(twice, clip_ratio=None).trend
    assert found is not None
    line = linear_regression([0, 1, 2, 2, 3, 4], [0.1, 0.2, 0.6, 0.6, 0.3, 0.5])
    assert found.slope == pytest.approx(line.slope)


def test_few_steps_have_no_trend() -> None:
    steps = [counts(s, mixed=1, mean=s / 10) for s in range(MIN_TREND_STEPS)]
    assert report_signal(steps, clip_ratio=None).trend is not None
    assert report_signal(steps[:-1], clip_ratio=None).trend is None
