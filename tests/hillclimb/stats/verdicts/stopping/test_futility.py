"""The chance that an evaluation still decides."""

from fractions import Fraction
from statistics import NormalDist

import pytest

from hillclimb.stats.verdicts.stopping.futility import DecisionChance


def chance(differences: list[int], *, planned: int, level: float = 0.025) -> float:
    estimate = DecisionChance(planned=planned, one_sided_level=level)
    for difference in differences:
        estimate.add(Fraction(difference))
    return estimate.value


def test_the_chance_is_the_one_worked_out_by_hand() -> None:
    """Six gained, two lost, 22 unchanged of 30, and 70 to come; with one more of each: 32 tasks.

    Mean 4/32 = 0.125, squares 10, variance 10/32 - 1/64 = 0.296875, deviation 0.544862. The mean at
    the end of its interval is 0.125 + 1.959964 * 0.544862 / sqrt(32) = 0.313784: a sum of
    4 + 70 * 0.313784 = 25.9649 at the end. Needed are 1.959964 * sqrt(10 * 102 / 32) = 11.0655;
    the rest varies by 0.544862 * sqrt(70) = 4.55867.
    """
    found = chance([1] * 6 + [-1] * 2 + [0] * 22, planned=100)
    assert found == pytest.approx(1.0 - NormalDist().cdf((11.0655 - 25.9649) / 4.55867), abs=1e-4)


def test_gains_and_losses_are_alike() -> None:
    differences = [1, 1, 1, 0, 0, -1, 0, 1, 0, 0]
    turned = [-each for each in differences]
    assert chance(differences, planned=40) == chance(turned, planned=40)


def test_a_change_without_direction_becomes_hopeless_as_tasks_run_out() -> None:
    no_change = [1, -1, 0, 0, 0] * 20
    chances = [chance(no_change[:end], planned=105) for end in (20, 50, 80, 100)]
    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5
    assert chances[-1] < 0.001


def test_a_few_tasks_without_a_change_do_not_show_that_none_will_come() -> None:
    assert chance([0] * 10, planned=300) > 0.5
    assert chance([0] * 100, planned=110) < 0.01


def test_at_the_end_the_chance_is_certain() -> None:
    assert chance([1] * 20, planned=20) == 1.0
    assert chance([1, -1] * 10, planned=20) == 0.0
