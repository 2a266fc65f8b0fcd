"""Families of runs: quantiles by tables, intervals by simulation."""

from __future__ import annotations

import random

import pytest

from hillclimb.stats.pass_rate import TaskCount
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


def test_no_freedom_has_no_quantile() -> None:
    with pytest.raises(ValueError, match="0"):
        t_quantile(0)


def test_a_single_run_has_the_interval_of_its_tasks() -> None:
    figure = family_rate([run([1, 0, 1, 1])])
    assert (figure.value, figure.num_tasks, figure.covers_seeds) == (0.75, 4, False)
    assert family_rate([]).value is None
    assert family_change([run([1])], []).value is None


def test_the_spread_counts_runs_and_not_tasks() -> None:
    spread = spread_of([0.2, 0.4, 0.6])
    assert spread.num_runs == 3
    assert spread.mean == pytest.approx(0.4)
    assert (spread.least, spread.most) == (0.2, 0.6)
    assert spread.sd == pytest.approx(0.2)
    assert spread_of([0.5]).sd is None
    assert spread_of([]).mean is None


def test_seeds_that_disagree_widen_the_interval_of_the_same_tasks() -> None:
    alike = [run([1] * 30 + [0] * 30) for _ in range(3)]
    apart = [run([1] * n + [0] * (60 - n)) for n in (15, 30, 45)]
    narrow, wide = family_rate(alike), family_rate(apart)
    assert narrow.value == wide.value == 0.5
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)
    assert narrow.covers_seeds


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
    low, high = series_change([0.1, 0.2], [0.2, 0.3]) or (0.0, 0.0)
    assert low < 0.1 < high


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
