"""Rounding is no contrast, and a score at the mean is at the mean however it is written."""

from __future__ import annotations

import pytest

from hillclimb.stats.reward_spread import deviations, differ


def test_deviations_are_taken_from_the_mean() -> None:
    assert deviations([1.0, 0.0, 0.0, 0.0]) == (0.75, -0.25, -0.25, -0.25)
    assert deviations([]) == ()
    assert deviations([0.7]) == (0.0,)


@pytest.mark.parametrize("scores", [[0.0, 0.5, 1.0], [0.1, 0.2, 0.3], [0.2, 0.4, 0.6]])
def test_the_score_in_the_middle_is_at_the_mean_whatever_the_scale(scores: list[float]) -> None:
    low, middle, high = deviations(scores)
    assert low < 0.0 == middle < high


def test_rounding_is_no_contrast_and_a_small_difference_is_one() -> None:
    assert not differ([0.1 + 0.2, 0.3, 0.3])
    assert not differ([])
    assert not differ([1.0])
    assert differ([0.3, 0.3, 0.300001])
    assert not differ([0.0, 2e-9])
    assert differ([0.0, 2.1e-9])
