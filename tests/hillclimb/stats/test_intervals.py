"""Intervals by hand: effective trials, the exact limits near 0 and 1, and the cap."""

import math
from itertools import product

import pytest

from hillclimb.stats.intervals import (
    exact_low,
    independent_trials,
    interval,
    points_text,
    wilson,
)
from hillclimb.stats.pass_rate import pass_at_k


@pytest.mark.parametrize(
    ("change", "text"), [(0.032, "+3.2"), (-0.004, "-0.4"), (-0.0001, "+0.0"), (None, "–")]
)
def test_a_change_is_written_in_points_with_a_minus_that_can_be_read_as_a_number(
    change: float | None, text: str
) -> None:
    assert points_text(change) == text


def test_rollouts_of_one_task_that_agree_do_not_narrow_the_interval() -> None:
    assert interval([1.0] * 14 + [0.0] * 16, max_trials=30 * 8) == wilson(14 / 30, 30)


def test_rollouts_that_vary_within_tasks_narrow_the_interval_up_to_independent_ones() -> None:
    assert interval([0.5] * 30, max_trials=80) == wilson(0.5, 80)
    assert interval([0.5] * 30, max_trials=10) == wilson(0.5, 30), "a task is a trial at least"


def test_the_effective_number_of_trials_by_hand() -> None:
    """Variance 24 * 0.0625 / 23 around 0.5: 0.25 * 24 / 0.065217 = 92 trials."""
    spread = [0.25, 0.75] * 12
    assert interval(spread, max_trials=500) == pytest.approx(wilson(0.5, 92.0), rel=1e-12)
    assert interval(spread, max_trials=80) == wilson(0.5, 80.0)


def test_tasks_are_added_at_0_and_1_where_the_values_add_up_to_little() -> None:
    """The sum is 2, two fifths of 5: 0.45 at each end, so W = 30.9, the centre 2.45 / W.

    Squares: 8 tasks at 1/4, 22 at 0, and 0.45 at both ends.
    """
    centre = 2.45 / 30.9
    squares = 8 * (0.25 - centre) ** 2 + 22 * centre**2
    squares += 0.45 * (centre**2 + (1 - centre) ** 2)
    trials = centre * (1 - centre) * 30 * 29.9 / squares
    assert trials == pytest.approx(86.8, abs=0.5)
    low, high = interval([0.25] * 8 + [0.0] * 22, max_trials=1000.0)
    expected = wilson(2 / 30, trials)
    assert high == pytest.approx(expected[1], rel=1e-12)
    assert low == pytest.approx(exact_low(trials * 2 / 30, trials * 28 / 30), rel=1e-9)
    assert low < expected[0]
    mirrored = interval([0.75] * 8 + [1.0] * 22, max_trials=1000.0)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-12)


def test_up_to_ten_passes_or_fails_the_exact_limit_is_read_too() -> None:
    ten, eleven = [1.0] * 10 + [0.0] * 30, [1.0] * 11 + [0.0] * 29
    assert interval(ten, max_trials=40) == (exact_low(10, 30), wilson(0.25, 40)[1])
    assert interval(eleven, max_trials=40) == wilson(11 / 40, 40)
    most = [1.0 - value for value in ten]
    assert interval(most, max_trials=40) == (wilson(0.75, 40)[0], 1.0 - exact_low(10, 30))


def test_no_passes_have_wilsons_interval_and_in_ten_tasks_the_exact_one() -> None:
    assert interval([0.0] * 11, max_trials=80) == (0.0, wilson(0.0, 11.0)[1])
    assert interval([0.0] * 10, max_trials=80)[1] == pytest.approx(1 - 0.025**0.1)
    assert interval([1.0] * 10, max_trials=80)[1] == 1.0
    assert interval([], max_trials=0) == (0.0, 1.0)


def test_one_task_has_an_interval() -> None:
    assert interval([1.0], max_trials=8)[1] == 1.0
    assert interval([1.0], max_trials=8)[0] == pytest.approx(0.025), "the chance of one pass is q"
    low, high = interval([0.5], max_trials=8)
    assert low == pytest.approx(1 - high)
    assert 0.0 < low < 0.5


def test_the_exact_limit_by_hand() -> None:
    """All n pass with chance q^n; one of n at least with chance 1 - (1-q)^n."""
    for n in (1, 2, 5, 10):
        assert exact_low(n, 0.0) == pytest.approx(0.025 ** (1 / n), rel=1e-12)
        assert exact_low(1.0, n - 1) == pytest.approx(1 - 0.975 ** (1 / n), rel=1e-12)
    assert exact_low(0.0, 7.0) == 0.0
    assert exact_low(0.0005, 7.0) == 0.0, "below every number that a float holds"


def test_at_the_exact_limit_as_many_passes_have_a_chance_of_one_in_forty() -> None:
    for passed, trials in [(3, 10), (10, 30), (7, 200), (10, 10_000)]:
        q = exact_low(passed, trials - passed)
        fewer = (math.comb(trials, x) * q**x * (1 - q) ** (trials - x) for x in range(passed))
        assert 1.0 - math.fsum(fewer) == pytest.approx(0.025, abs=1e-9)


def test_wilsons_interval_by_hand_stays_within_zero_and_one() -> None:
    # z^2 = 3.8415: centre 0.5, half 1.96 * sqrt(0.0125 + 0.0024009) / 1.19207
    assert wilson(0.5, 20.0) == pytest.approx((0.29930, 0.70070), abs=1e-5)
    # centre (0.1 + 0.192073) / 1.384146, half 1.96 * sqrt(0.009 + 0.0096036) / 1.384146
    assert wilson(0.1, 10.0) == pytest.approx((0.01788, 0.40415), abs=1e-5)
    for trials in range(1, 200):
        assert wilson(0.0, trials)[0] == pytest.approx(0.0, abs=1e-12)
        assert wilson(1.0, trials)[1] == pytest.approx(1.0, abs=1e-12)
        assert wilson(0.0, trials)[0] >= 0.0
        assert wilson(1.0, trials)[1] <= 1.0


def test_tasks_that_are_alike_are_worth_their_rollouts_at_1_and_themselves_at_k_of_k() -> None:
    assert independent_trials([8] * 10, 0.3, 1) == pytest.approx(80.0)
    assert independent_trials([8] * 10, 0.3, 8) == pytest.approx(10.0)
    assert independent_trials([1, 3], 0.5, 1) == pytest.approx(4 / (1 + 1 / 3))
    assert independent_trials([8] * 10, 0.0, 1) == 10.0
    assert independent_trials([8] * 10, 1.0, 1) == 10.0
    assert independent_trials([], 0.0, 1) == 0.0


def test_the_trials_of_pass_at_2_are_those_of_the_enumeration_of_all_rollouts() -> None:
    """Pass@2 of three rollouts that pass with chance 0.4 each: 1 - 0.36 = 0.64."""
    chances = {
        rolled: math.prod(0.4 if passed else 0.6 for passed in rolled)
        for rolled in product((0, 1), repeat=3)
    }
    variance = sum(
        chance * (pass_at_k(3, sum(rolled), 2) - 0.64) ** 2 for rolled, chance in chances.items()
    )
    assert independent_trials([3] * 7, 0.64, 2) == pytest.approx(7 * 0.64 * 0.36 / variance)
