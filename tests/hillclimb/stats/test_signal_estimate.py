"""Shares of groups with signal, by hand and by enumeration."""

import random
from fractions import Fraction
from itertools import combinations, product

import pytest

from hillclimb.stats.intervals import interval
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.signal_estimate import (
    GROUP_SIZES,
    largest_counted_size,
    signal_of_task,
    signal_share,
)


def task(graded: int, passed: int, *, missing: int = 0, key: str = "t") -> TaskCount:
    return TaskCount(
        task_key=key,
        env_key="booking",
        template="x",
        held_out_template=False,
        num_graded=graded,
        num_passed=passed,
        num_missing=missing,
    )


def test_group_sizes_are_those_of_the_issue() -> None:
    assert (GROUP_SIZES[0], GROUP_SIZES[-1], len(GROUP_SIZES)) == (2, 16, 15)


@pytest.mark.parametrize(
    ("graded", "passed", "size", "share"),
    [
        (4, 2, 2, Fraction(4, 6)),  # six pairs, of which one passes and one fails as a whole
        (4, 1, 2, Fraction(3, 6)),
        (4, 1, 3, Fraction(3, 4)),
        (4, 1, 4, Fraction(1)),
        (8, 0, 8, Fraction(0)),
        (8, 8, 2, Fraction(0)),
        (5, 2, 1, Fraction(0)),  # alone, a rollout agrees with itself
    ],
)
def test_counted_by_hand(graded: int, passed: int, size: int, share: Fraction) -> None:
    assert signal_of_task(graded, passed, size) == pytest.approx(float(share), abs=1e-12)


def test_it_is_the_share_of_the_groups_that_can_be_drawn() -> None:
    for graded in range(2, 8):
        for passed in range(graded + 1):
            scores = [True] * passed + [False] * (graded - passed)
            for size in range(1, graded + 1):
                groups = list(combinations(scores, size))
                mixed = sum(any(group) and not all(group) for group in groups)
                expected = mixed / len(groups)
                assert signal_of_task(graded, passed, size) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 28), Fraction(1, 2), Fraction(4, 5)])
def test_it_is_unbiased_where_the_plug_in_is_not(p: Fraction) -> None:
    """Averaged over everything that n = 4 rollouts can show, weighted by how often they do."""
    n = 4
    outcomes = list(product((0, 1), repeat=n))
    weights = [p ** sum(each) * (1 - p) ** (n - sum(each)) for each in outcomes]
    for size in (2, 3, 4):
        truth = float(1 - p**size - (1 - p) ** size)
        counted = sum(
            float(weight) * signal_of_task(n, sum(each), size)
            for each, weight in zip(outcomes, weights, strict=True)
        )
        plugged = sum(
            float(weight) * (1 - (sum(each) / n) ** size - (1 - sum(each) / n) ** size)
            for each, weight in zip(outcomes, weights, strict=True)
        )
        assert counted == pytest.approx(truth, abs=1e-12)
        if 0 < p < 1:
            assert plugged < truth - 0.005


@pytest.mark.parametrize(
    ("graded", "passed", "size"), [(3, 4, 2), (3, 1, 4), (3, 1, 0), (3, -1, 1)]
)
def test_what_cannot_be_counted_is_refused(graded: int, passed: int, size: int) -> None:
    with pytest.raises(ValueError, match="undefined"):
        signal_of_task(graded, passed, size)


def test_the_known_environment_of_few_passes_needs_large_groups() -> None:
    """`reference/api.md`: at 3.6 % passes, 13.6 % of groups of 4 carry signal, 44 % of 16."""
    p = 0.036
    assert 1 - p**4 - (1 - p) ** 4 == pytest.approx(0.136, abs=5e-4)
    draw = random.Random(3)
    counts = [task(16, sum(draw.random() < p for _ in range(16))) for _ in range(4_000)]
    assert signal_share(counts, 4).value == pytest.approx(0.136, abs=0.01)
    assert signal_share(counts, 16).value == pytest.approx(0.444, abs=0.02)


def test_groups_larger_than_the_rollouts_of_a_task_are_unknown() -> None:
    share = signal_share([task(4, 2)] * 50, 5)
    assert (share.method, share.value, share.low, share.high) == ("unknown", None, 0.0, 1.0)
    assert signal_share([task(4, 2)] * 50, 4).method == "counted"


def test_larger_groups_never_carry_less_signal() -> None:
    draw = random.Random(4)
    for _ in range(20):
        counts = [task(8, draw.choice([0, 0, 1, 3, 5, 8])) for _ in range(12)]
        shares = [signal_share(counts, size) for size in GROUP_SIZES]
        assert [share.method for share in shares] == ["counted"] * 7 + ["unknown"] * 8
        values = [share.value for share in shares[:7] if share.value is not None]
        assert values == sorted(values)
        assert all(share.low <= (share.value or 0.0) <= share.high for share in shares)


def test_the_interval_covers_the_truth_as_often_as_it_says() -> None:
    """Over 200 populations of pass probabilities, 24 tasks of 4 rollouts each."""
    draw, covered, worlds = random.Random(5), 0, 200
    for _ in range(worlds):
        mean, correlation = draw.uniform(0.05, 0.95), draw.uniform(0.1, 0.9)
        a = mean * (1 / correlation - 1)
        b = (1 - mean) * (1 / correlation - 1)
        counts = []
        for _ in range(24):
            p = draw.betavariate(a, b)
            counts.append(task(4, sum(draw.random() < p for _ in range(4))))
        all_pass = all_fail = 1.0
        for i in range(3):
            all_pass *= (a + i) / (a + b + i)
            all_fail *= (b + i) / (a + b + i)
        share = signal_share(counts, 3)
        covered += share.low <= 1 - all_pass - all_fail <= share.high
    assert covered / worlds >= 0.91


def test_tasks_with_a_rollout_missing_are_left_out_of_the_count() -> None:
    share = signal_share([task(8, 4), task(8, 4), task(7, 0, missing=1)], 8)
    assert (share.method, share.num_tasks, share.value) == ("counted", 2, 1.0)
    mostly_missing = [task(8, 4), task(3, 1), task(3, 2), task(3, 0)]
    assert largest_counted_size(mostly_missing) == 3
    assert signal_share(mostly_missing, 8).method == "unknown"
    assert signal_share(mostly_missing, 3).num_tasks == 4


@pytest.mark.parametrize(
    ("graded", "size"), [([8, 4], 8), ([8, 4, 3], 4), ([4, 5, 6, 7, 8], 6), ([8, 1, 1, 1], 8)]
)
def test_half_of_the_tasks_have_as_many_rollouts_as_the_largest_group(
    graded: list[int], size: int
) -> None:
    assert largest_counted_size([task(number, 1) for number in graded]) == size


def test_the_interval_is_that_of_whole_groups() -> None:
    """Two of five pass: 1 - (1 + 3) / 10 of the pairs are mixed. Fifteen rollouts: seven pairs."""
    share = signal_share([task(5, 2)] * 3, 2)
    assert share.value == pytest.approx(0.6)
    assert (share.low, share.high) == pytest.approx(interval([0.6] * 3, max_trials=7))


def test_without_two_rollouts_of_a_task_nothing_is_known() -> None:
    for counts in ([], [task(1, 1)], [task(0, 0, missing=4)]):
        share = signal_share(counts, 4)
        assert (share.value, share.low, share.high, share.num_tasks) == (None, 0.0, 1.0, 0)
