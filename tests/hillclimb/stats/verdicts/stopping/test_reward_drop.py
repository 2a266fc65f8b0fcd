"""The test of a fall: Student's tail against closed forms, corrections counted by hand."""

from __future__ import annotations

import math
from random import Random

import pytest

from hillclimb.stats.verdicts.stopping.reward_drop import (
    neighbour_correlation,
    reward_drop,
    student_upper_tail,
    welch_greater,
)


@pytest.mark.parametrize("t", [-30.0, -2.5, -0.3, 0.0, 0.2, 1.0, 4.0, 60.0])
def test_the_tail_of_students_t_is_that_of_its_closed_forms(t: float) -> None:
    assert student_upper_tail(t, 1.0) == pytest.approx(0.5 - math.atan(t) / math.pi, rel=1e-12)
    two = 0.5 - t / (2.0 * math.sqrt(2.0 + t * t))
    assert student_upper_tail(t, 2.0) == pytest.approx(two, rel=1e-9)
    sine, cosine = t / math.sqrt(4.0 + t * t), 2.0 / math.sqrt(4.0 + t * t)
    four = 0.5 - sine * (1.0 + cosine * cosine / 2.0) / 2.0
    assert student_upper_tail(t, 4.0) == pytest.approx(four, abs=1e-12)


def test_a_quarter_of_the_tail_with_a_hundred_degrees_begins_where_the_tables_say() -> None:
    assert student_upper_tail(0.676951, 100.0) == pytest.approx(0.25, abs=1e-6)
    assert student_upper_tail(-0.676951, 100.0) == pytest.approx(0.75, abs=1e-6)


def test_the_tail_with_many_degrees_of_freedom_is_close_to_the_normal_one() -> None:
    """By the expansion of Student's quantile around the normal one (Abramowitz & Stegun 26.7.5)."""
    normal, freedom = 1.959963984540054, 1e5
    quantile = normal + (normal**3 + normal) / (4.0 * freedom)
    assert student_upper_tail(quantile, freedom) == pytest.approx(0.025, abs=1e-9)


def test_welchs_test_by_hand() -> None:
    """Means 3 and 1, variances 1 and 1 over three each: t = 2 / sqrt(2/3), four degrees."""
    p_value = welch_greater([2.0, 3.0, 4.0], [0.0, 1.0, 2.0])
    assert p_value == pytest.approx(student_upper_tail(2.0 / math.sqrt(2.0 / 3.0), 4.0))
    assert welch_greater([0.0, 1.0, 2.0], [2.0, 3.0, 4.0]) == pytest.approx(1.0 - p_value)


def test_correlated_neighbours_are_worth_fewer_steps() -> None:
    """r = 1/3 doubles the variance of the mean and halves the degrees of freedom: 4 become 2."""
    p_value = welch_greater([2.0, 3.0, 4.0], [0.0, 1.0, 2.0], correlation=1.0 / 3.0)
    assert p_value == pytest.approx(student_upper_tail(2.0 / math.sqrt(4.0 / 3.0), 2.0))


def test_no_test_has_less_than_one_degree_of_freedom() -> None:
    """r = 0.9 leaves a nineteenth of four degrees."""
    p_value = welch_greater([2.0, 3.0, 4.0], [0.0, 1.0, 2.0], correlation=0.9)
    assert p_value == pytest.approx(student_upper_tail(2.0 / math.sqrt(19.0 * 2.0 / 3.0), 1.0))


def test_the_tail_ends_at_zero() -> None:
    assert student_upper_tail(math.inf, 3.0) == 0.0
    assert student_upper_tail(-math.inf, 3.0) == 1.0


def test_the_correlation_of_neighbours_by_hand() -> None:
    """Deviations 1, 1, -1, -1 have products 1, -1, 1 over squares 4, plus 1/4, over 1 - 3/6."""
    assert neighbour_correlation([[3.0, 3.0, 1.0, 1.0]]) == pytest.approx((0.25 + 0.25) / 0.5 * 0.9)
    assert neighbour_correlation([[3.0, 1.0, 3.0, 1.0]]) == 0.0
    assert neighbour_correlation([[0.5, 0.5, 0.5]]) == 0.0


def test_the_correlation_is_hardly_biased_in_windows_of_ten() -> None:
    random = Random(5)
    for truth in (0.0, 0.3, 0.6):
        windows = []
        for _ in range(4000):
            values = [random.gauss(0.0, 1.0)]
            for _ in range(9):
                noise = math.sqrt(1.0 - truth * truth) * random.gauss(0.0, 1.0)
                values.append(truth * values[-1] + noise)
            windows.append(values)
        assert neighbour_correlation(windows) == pytest.approx(truth, abs=0.06)


def test_constant_windows_differ_for_certain_or_not_at_all() -> None:
    assert welch_greater([0.5, 0.5], [0.1, 0.1]) == 0.0
    assert welch_greater([0.5, 0.5], [0.5, 0.5]) == 1.0


def test_the_best_earlier_window_counts_and_p_is_multiplied_by_windows_and_looks() -> None:
    first, best, newest = [0.4, 0.5, 0.6], [0.7, 0.8, 0.9], [0.1, 0.2, 0.3]
    drop = reward_drop([*first, *best, *newest], window=3, num_looks=4)
    assert drop is not None
    assert (drop.best_end, drop.num_windows) == (5, 2)
    assert (drop.best, drop.newest) == (pytest.approx(0.8), pytest.approx(0.2))
    assert drop.size == pytest.approx(0.6)
    correlation = neighbour_correlation([first, best, newest])
    by_itself = welch_greater(best, newest, correlation=correlation)
    assert drop.p_value == pytest.approx(by_itself * 2 * 4)
    assert drop.correlation == correlation
    earlier = reward_drop([*best, *first, *newest], window=3, num_looks=4)
    assert earlier is not None
    assert (earlier.best, earlier.best_end) == (pytest.approx(0.8), 2)


def test_a_rise_is_no_fall_however_often_it_is_looked_at() -> None:
    drop = reward_drop([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], window=3, num_looks=4)
    assert drop is not None
    assert (drop.p_value, drop.size) == (1.0, pytest.approx(-0.6))


def test_earlier_windows_end_where_the_newest_one_begins() -> None:
    """Of seven steps and windows of three: steps 5 to 7 against 2 to 4; the first is in none."""
    drop = reward_drop([9.0, 0.5, 0.6, 0.7, 0.4, 0.5, 0.6], window=3, num_looks=1)
    assert drop is not None
    assert (drop.num_windows, drop.best) == (1, pytest.approx(0.6))


def test_fewer_than_two_windows_are_not_tested() -> None:
    assert reward_drop([0.5] * 5, window=3, num_looks=1) is None
