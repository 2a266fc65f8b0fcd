"""Families of runs: quantiles by tables, intervals by simulation."""

from __future__ import annotations

import math
import random

import pytest

from hillclimb.stats.intervals import CONFIDENCE_Z, interval, wilson
from hillclimb.stats.pass_rate import TaskCount, pass_rate
from hillclimb.stats.verdicts.experiments.families import (
    Runs,
    family_change,
    family_rate,
    series_change,
    series_mean,
    spread_of,
)
from hillclimb.stats.verdicts.experiments.student import t_quantile


def count(task: int, passed: int, *, graded: int = 1, env: str = "booking") -> TaskCount:
    return TaskCount(
        task_key=f"{env}-{task}",
        env_key=env,
        template="t",
        held_out_template=False,
        num_graded=graded,
        num_passed=passed,
        num_missing=0,
    )


def run(passes: list[int], *, graded: int = 1) -> list[TaskCount]:
    return [count(task, passed, graded=graded) for task, passed in enumerate(passes)]


@pytest.mark.parametrize(
    ("freedom", "expected"),
    [
        # Tables of the t distribution, two-sided 5 %.
        (1, 12.7062047),
        (2, 4.3026527),
        (3, 3.1824463),
        (4, 2.7764451),
        (10, 2.2281389),
        (30, 2.0422725),
        (120, 1.9799304),
        (1e7, 1.9599640),
    ],
)
def test_the_quantile_is_that_of_the_tables(freedom: float, expected: float) -> None:
    assert t_quantile(freedom) == pytest.approx(expected, abs=1e-6)


def test_from_a_million_degrees_the_quantile_is_the_normal_one() -> None:
    assert t_quantile(1e6) == CONFIDENCE_Z


def test_no_freedom_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="with 0 degrees"):
        t_quantile(0)


def test_a_single_run_has_the_interval_of_its_tasks() -> None:
    figure = family_rate([run([1, 0, 1, 1])])
    assert (figure.value, figure.num_tasks, figure.covers_seeds) == (0.75, 4, False)
    rate = pass_rate(run([1, 0, 1, 1]))
    assert (figure.low, figure.high) == (rate.low, rate.high)
    assert family_rate([run([2, 1, 0, 0], graded=2)], k=2).value == 0.5
    assert family_rate([]).value is None
    assert family_change([run([1])], []).value is None


def test_the_spread_counts_runs_and_not_tasks() -> None:
    spread = spread_of([0.2, 0.4, 0.6])
    assert spread.num_runs == 3
    assert spread.mean == pytest.approx(0.4)
    assert (spread.least, spread.most) == (0.2, 0.6)
    assert spread.sd == pytest.approx(0.2)
    assert spread_of([0.2, 0.4]).sd == pytest.approx(math.sqrt(0.02))
    assert spread_of([0.5]).sd is None
    assert spread_of([]).mean is None


def test_seeds_that_disagree_widen_the_interval_of_the_same_tasks() -> None:
    alike = [run([1] * 30 + [0] * 30) for _ in range(3)]
    apart = [run([1] * n + [0] * (60 - n)) for n in (15, 30, 45)]
    narrow, wide = family_rate(alike), family_rate(apart)
    assert narrow.value == wide.value == 0.5
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert narrow.covers_seeds


def test_the_interval_of_a_family_by_hand() -> None:
    """16 and 24 of the same 40 tasks pass: means 0.4 and 0.6, tasks at 1, 1/2 and 0.

    Over tasks: squares 32 / 4, variance 8 / 39, of the mean 1 / 195 with 39 degrees of freedom.
    Over runs: variance 0.02, of the mean 0.01 with one degree.
    """
    figure = family_rate([run([1] * n + [0] * (40 - n)) for n in (16, 24)])
    total = 1 / 195 + 0.01
    freedom = total**2 / ((1 / 195) ** 2 / 39 + 0.01**2 / 1)
    half = t_quantile(freedom) * math.sqrt(total)
    assert figure.value == pytest.approx(0.5)
    assert (figure.low, figure.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert (figure.num_tasks, figure.covers_seeds) == (40, True)


def test_an_interval_of_a_family_ends_at_zero_and_one() -> None:
    low = family_rate([run([1] * n + [0] * (40 - n)) for n in (0, 16)])
    high = family_rate([run([1] * n + [0] * (40 - n)) for n in (24, 40)])
    assert (low.low, high.high) == (0.0, 1.0)
    assert low.high == pytest.approx(1.0 - high.low)


def test_a_family_without_spread_has_the_interval_of_its_rollouts() -> None:
    """Each task passes in one of both runs: 80 rollouts that vary within tasks alone."""
    halves = family_rate([run([1] * 20 + [0] * 20), run([0] * 20 + [1] * 20)])
    assert (halves.low, halves.high) == pytest.approx(wilson(0.5, 80.0))
    never = family_rate([run([0] * 40)] * 3)
    assert (never.low, never.high) == pytest.approx(interval([0.0] * 40, max_trials=120.0))


def test_a_run_without_grades_tells_nothing_about_seeds() -> None:
    """Ten of 20 tasks: squares 5, variance 5 / 19, of the mean 5 / 380 with 19 degrees."""
    figure = family_rate([run([1] * 10 + [0] * 10), []])
    half = t_quantile(19) * math.sqrt(5 / 380)
    assert (figure.value, figure.covers_seeds) == (0.5, False)
    assert (figure.low, figure.high) == pytest.approx((0.5 - half, 0.5 + half))
    nothing = family_rate([[], []])
    assert (nothing.value, nothing.low, nothing.high) == (None, 0.0, 1.0)
    assert (nothing.num_tasks, nothing.covers_seeds) == (0, False)


def test_the_interval_of_a_change_by_hand() -> None:
    """2 and 4 of ten tasks before, 6 and 8 after: changes 0, 1/2, 1, 1/2, 0 of two tasks each.

    With half a task at +1 and -1, and one at 0: 12 tasks, sum 4, squares 4, variance 2 / 9, of the
    mean 1 / 54 with 11 degrees. Both sides' runs: variance 0.02, of the mean 0.01 with one degree.
    """
    before, after = ([run([1] * n + [0] * (10 - n)) for n in side] for side in ((2, 4), (6, 8)))
    figure = family_change(before, after)
    total = 1 / 54 + 0.02
    half = t_quantile(total**2 / ((1 / 54) ** 2 / 11 + 2 * 0.01**2)) * math.sqrt(total)
    assert figure.value == pytest.approx(0.4)
    assert (figure.low, figure.high) == pytest.approx((0.4 - half, 0.4 + half))
    assert (figure.num_tasks, figure.covers_seeds) == (10, True)


def test_the_interval_of_a_change_from_a_single_run_by_hand() -> None:
    """No task before, 6 and 8 of ten after: changes 1 of six tasks, 1/2 of two, 0 of two.

    Twelve tasks, sum 7, squares 7.5: variance 0.625 - (7/12)^2, over 12, with 11 degrees. The runs
    after: 0.01 with one degree. The single run: the variance of one value, 0.02, with one degree.
    """
    alone, several = [run([0] * 10)], [run([1] * n + [0] * (10 - n)) for n in (6, 8)]
    tasks = (0.625 - (7 / 12) ** 2) / 12
    total = tasks + 0.03
    half = t_quantile(total**2 / (tasks**2 / 11 + 0.01**2 + 0.02**2)) * math.sqrt(total)
    rise, fall = family_change(alone, several), family_change(several, alone)
    assert (rise.value, fall.value) == (pytest.approx(0.7), pytest.approx(-0.7))
    assert (rise.low, rise.high) == (pytest.approx(0.7 - half), 1.0)
    assert (fall.low, fall.high) == (-1.0, pytest.approx(half - 0.7))
    assert rise.covers_seeds
    assert 0.7 + half > 1.0


def test_families_without_a_shared_task_have_no_change() -> None:
    figure = family_change([[count(0, 1)]], [[count(1, 1)]])
    assert (figure.value, figure.low, figure.high) == (None, -1.0, 1.0)
    assert (figure.num_tasks, figure.covers_seeds) == (0, False)


def test_a_task_without_a_grade_counts_in_the_runs_that_graded_it() -> None:
    """The second task has a grade in one run only: means 1 and 1/2, task means 1 and 0."""
    figure = family_rate([[count(0, 1), count(1, 0, graded=0)], run([1, 0])])
    assert (figure.value, figure.num_tasks) == (0.75, 2)


def test_a_side_with_one_run_is_taken_to_spread_as_the_other() -> None:
    apart = [run([1] * n + [0] * (60 - n)) for n in (15, 30, 45)]
    one = family_change([run([1] * 10 + [0] * 50)], apart)
    several = family_change([run([1] * 10 + [0] * 50)] * 3, apart)
    assert one.value == several.value
    assert one.high - one.low > several.high - several.low
    assert family_change([run([1, 0])], [run([1, 1])]).covers_seeds is False


def test_pass_at_k_of_a_family_is_of_each_run_and_not_of_their_mixture() -> None:
    """Two runs that pass different tasks always: pass@2 of each is a half, of the mixture 1."""
    first, second = run([2, 0], graded=2), run([0, 2], graded=2)
    assert family_rate([first, second], k=2).value == 0.5


def test_no_change_among_a_few_tasks_is_not_certain() -> None:
    figure = family_change([run([1, 0] * 20)] * 3, [run([1, 0] * 20)] * 3)
    assert (figure.value, figure.covers_seeds) == (0.0, True)
    assert figure.low == -figure.high
    # Half a task at each end: sd sqrt(1/42), over 42 tasks.
    assert figure.high == pytest.approx(t_quantile(41) / 42)


def test_a_change_is_over_the_tasks_of_both_sides() -> None:
    before = [[count(0, 0), count(1, 0), count(2, 1)]]
    after = [[count(0, 1), count(1, 0), count(3, 1)]]
    figure = family_change(before, after)
    assert (figure.value, figure.num_tasks) == (0.5, 2)


def test_series_have_an_interval_from_two_runs_on() -> None:
    assert series_mean([0.3]) is None
    low, high = series_mean([0.2, 0.4]) or (0.0, 0.0)
    assert (low + high) / 2 == pytest.approx(0.3)
    assert high - low == pytest.approx(2 * 12.7062047 * 0.1, rel=1e-6)
    assert series_change([0.1], [0.2, 0.3]) is None
    assert series_change([0.1, 0.2], [0.3]) is None


def test_the_difference_of_series_is_welchs() -> None:
    """Of each mean 0.0025 with one degree: two degrees together. Then 0.01 / 3 with two degrees and
    0.01 with one: 0.04^2 / 9 over 0.01^2 / 18 + 0.01^2, that is 32 / 19 degrees."""
    half = 4.3026527 * math.sqrt(0.005)
    assert series_change([0.1, 0.2], [0.2, 0.3]) == pytest.approx((0.1 - half, 0.1 + half))
    half = t_quantile(32 / 19) * math.sqrt(0.04 / 3)
    change = series_change([0.1, 0.2, 0.3], [0.5, 0.7])
    assert change == pytest.approx((0.4 - half, 0.4 + half))


@pytest.mark.parametrize(("num_runs", "seed_sd"), [(3, 0.0), (3, 0.05), (5, 0.1)])
def test_the_intervals_cover_the_truth_over_tasks_and_seeds(num_runs: int, seed_sd: float) -> None:
    """400 families of 60 tasks: difficulty varies by task, strength by seed."""
    rng = random.Random(5)
    rates, changes, repetitions = 0, 0, 400
    for _ in range(repetitions):
        tasks = [rng.uniform(0.1, 0.9) for _ in range(60)]

        def family(lift: float, tasks: list[float] = tasks) -> Runs:
            strengths = [rng.gauss(lift, seed_sd) for _ in range(num_runs)]
            return [
                run([int(rng.random() < min(1, max(0, task + s))) for task in tasks])
                for s in strengths
            ]

        before, after = family(0.0), family(0.05)
        rate, change = family_rate(before), family_change(before, after)
        rates += rate.low <= 0.5 <= rate.high
        changes += change.low <= 0.05 <= change.high
    assert rates / repetitions >= 0.93
    assert changes / repetitions >= 0.93
