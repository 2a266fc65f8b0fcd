"""The chance of IMPROVED at the last step, against projections made by hand."""

from __future__ import annotations

import math
from random import Random
from statistics import NormalDist

import pytest

from hillclimb.stats.verdicts.stopping.hopeless import Shares, improvement_chance

LEVEL = 0.025


def shares(*passes: int) -> Shares:
    return {("booking", str(task)): float(passed) for task, passed in enumerate(passes)}


def drawn(random: Random, rate: float, tasks: int = 300) -> Shares:
    return shares(*(int(random.random() < rate) for _ in range(tasks)))


def test_a_projection_by_hand() -> None:
    """Ten tasks that always fail, and ten that flip: the rate is 0.5, 0, 0.5 after 0, 1, 2 steps.

    The line through them is flat at 1/3; its residuals are 1/6, -1/3 and 1/6 per task that flips,
    times two.
    """
    high, low = shares(*[0] * 10, *[1] * 10), shares(*[0] * 20)
    chance = improvement_chance(
        [(0, high), (1, low), (2, high)], last_step=3, one_sided_level=LEVEL
    )
    assert chance is not None
    assert (chance.num_tasks, chance.change) == (20, 0.0)
    assert chance.projected == pytest.approx(1.0 / 3.0 - 0.5)
    needed = -NormalDist().inv_cdf(LEVEL) * math.sqrt(max(2.0 / 22.0, 1.0 / 6.0) / 20.0)
    assert chance.needed == pytest.approx(needed)
    residuals = 10 * (1 / 9 + 4 / 9 + 1 / 9)
    weights = 1.0 + 1.0 / 3.0 + (3 - 1) ** 2 / 2.0
    error = math.sqrt((residuals + 0.5) / 22.0 * weights / 20.0)
    assert chance.value == pytest.approx(NormalDist().cdf((chance.projected - needed) / error))
    assert chance.projected_high - chance.projected == pytest.approx(1.959963984540054 * error)
    assert chance.projected - chance.projected_low == pytest.approx(1.959963984540054 * error)


def test_the_projection_of_a_rise_by_hand() -> None:
    """Of ten tasks two pass always and three from the second evaluation on: 0.2, 0.5, 0.5.

    The line through them rises by 0.075 per step from 0.4 in the middle: 0.7 after six steps. The
    lines of the three leave residuals -1/6, 1/3, -1/6: variance (0.5 + 0.5) / 12. Four steps beyond
    the middle, the error is sqrt(1/12 * (1 + 1/3 + 16/8) / 10) = 1/6. A
    change of 0.5 needs five changed tasks at least, more than the 5/12 of ten so far.
    """
    first, later = shares(*[1] * 2, *[0] * 8), shares(*[1] * 5, *[0] * 5)
    chance = improvement_chance(
        [(0, first), (2, later), (4, later)], last_step=6, one_sided_level=0.01
    )
    assert chance is not None
    assert (chance.num_tasks, chance.change) == (10, pytest.approx(0.3))
    assert chance.projected == pytest.approx(0.5)
    assert chance.needed == pytest.approx(2.3263479 * math.sqrt(0.05))
    assert chance.value == pytest.approx(NormalDist().cdf(6.0 * (0.5 - chance.needed)))
    ends = (chance.projected_low, chance.projected_high)
    assert ends == pytest.approx((0.5 - 1.9599640 / 6.0, 0.5 + 1.9599640 / 6.0))


def test_tasks_gained_and_lost_make_a_change_harder_to_show() -> None:
    """Five of ten gained and five lost: with one more of each, all twelve changed."""
    first, last = shares(*[1] * 5, *[0] * 5), shares(*[0] * 5, *[1] * 5)
    chance = improvement_chance(
        [(0, first), (2, first), (4, last)], last_step=6, one_sided_level=0.01
    )
    assert chance is not None
    assert (chance.change, chance.projected) == (0.0, pytest.approx(0.0))
    assert chance.needed == pytest.approx(2.3263479 * math.sqrt(0.1))


def test_the_newer_half_of_seven_evaluations_is_four() -> None:
    """Rates 0.5, 0.2, 0.2, and then 0.2, 0.3, 0.4, 0.5: on to 0.9 four steps later.

    The lines of the three tasks that begin to pass leave 0.3, 0.2 and 0.3: variance (0.4 + 0.5) /
    12. The last step is 5.5 from the middle of the four: the error is
    sqrt(0.075 * (1 + 1/4 + 30.25 / 5) / 10).
    """
    numbers = (5, 2, 2, 2, 3, 4, 5)
    evaluations = [(step, shares(*[1] * n, *[0] * (10 - n))) for step, n in enumerate(numbers)]
    chance = improvement_chance(evaluations, last_step=10, one_sided_level=LEVEL)
    assert chance is not None
    assert chance.projected == pytest.approx(0.4)
    error = math.sqrt(0.075 * 7.3 / 10)
    assert chance.projected_high - chance.projected == pytest.approx(1.9599640 * error)


def test_a_change_of_more_than_all_tasks_needs_no_more_than_all_of_them() -> None:
    """The rate falls from 1 to 0, and on to -1/2 at the last step: a change of -3/2."""
    half = shares(*[1] * 5, *[0] * 5)
    evaluations = [(0, shares(*[1] * 10)), (2, half), (4, shares(*[0] * 10))]
    chance = improvement_chance(evaluations, last_step=6, one_sided_level=0.01)
    assert chance is not None
    assert chance.projected == pytest.approx(-1.5)
    assert chance.needed == pytest.approx(2.3263479 * math.sqrt(0.1))


def test_no_rate_above_one_is_projected() -> None:
    half = shares(*[1] * 5, *[0] * 5)
    evaluations = [(0, shares(*[0] * 10)), (2, half), (4, shares(*[1] * 10))]
    chance = improvement_chance(evaluations, last_step=6, one_sided_level=LEVEL)
    assert chance is not None
    assert chance.projected == 1.0


def test_a_rise_is_projected_to_the_last_step() -> None:
    random = Random(1)
    evaluations = [(10 * index, drawn(random, 0.3 + 0.03 * index)) for index in range(6)]
    chance = improvement_chance(evaluations, last_step=100, one_sided_level=LEVEL)
    assert chance is not None
    assert 0.2 < chance.projected < 0.45
    assert chance.value > 0.99


def test_a_fall_is_hopeless_and_a_late_rise_is_not() -> None:
    random = Random(2)
    rates = (0.5, 0.46, 0.42, 0.38, 0.34)
    falling = [(10 * index, drawn(random, rate)) for index, rate in enumerate(rates)]
    chance = improvement_chance(falling, last_step=100, one_sided_level=LEVEL)
    assert chance is not None
    assert chance.value < 0.02
    rising = [(50 + 10 * index, drawn(random, 0.4 + 0.05 * index)) for index in range(5)]
    later = improvement_chance([*falling, *rising], last_step=100, one_sided_level=LEVEL)
    assert later is not None
    assert later.value > 0.5, "the newer half of the evaluations rises"


def test_tasks_without_a_grade_somewhere_are_left_out() -> None:
    random = Random(3)
    first, second, third = (drawn(random, 0.5, tasks=40) for _ in range(3))
    fewer = {key: share for key, share in second.items() if int(key[1]) >= 15}
    chance = improvement_chance(
        [(0, first), (5, fewer), (10, third)], last_step=20, one_sided_level=LEVEL
    )
    assert chance is not None
    assert chance.num_tasks == 25


def test_too_few_evaluations_or_tasks_have_no_chance() -> None:
    random = Random(4)
    first, second, third = (drawn(random, 0.5, tasks=9) for _ in range(3))
    few = [(0, first), (5, second), (10, third)]
    assert improvement_chance(few, last_step=20, one_sided_level=LEVEL) is None
    many = [(0, drawn(random, 0.5)), (5, drawn(random, 0.5))]
    assert improvement_chance(many, last_step=20, one_sided_level=LEVEL) is None
