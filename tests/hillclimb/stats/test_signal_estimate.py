"""Shares of groups with signal, by hand and by enumeration."""

import random
from fractions import Fraction
from itertools import combinations, product

import pytest

from trainer.contract.groupsignal import (
    BANDS,
    GROUP_SIZES,
    beta_below,
    fit_tasks,
    signal_of_task,
    signal_share,
)
from trainer.contract.passrate import TaskCount


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


def test_sizes_beyond_what_was_tried_are_fitted() -> None:
    """Tasks whose probability is drawn from Beta(0.6, 1.4), each tried only 4 times."""
    draw, a, b = random.Random(1), 0.6, 1.4
    counts = []
    for _ in range(3_000):
        p = draw.betavariate(a, b)
        counts.append(task(4, sum(draw.random() < p for _ in range(4))))
    for size in (8, 16):
        share = signal_share(counts, size)
        all_pass = all_fail = 1.0
        for i in range(size):
            all_pass *= (a + i) / (a + b + i)
            all_fail *= (b + i) / (a + b + i)
        truth = 1 - all_pass - all_fail
        assert share.method == "fitted"
        assert share.value == pytest.approx(truth, abs=0.03)
        assert share.low <= truth <= share.high
        assert share.high - share.low < 0.1
    plugged = [1 - (c.num_passed / 4) ** 16 - (1 - c.num_passed / 4) ** 16 for c in counts]
    assert sum(plugged) / len(plugged) < 0.9 * truth


def test_larger_groups_never_carry_less_signal() -> None:
    """Counted up to 8 rollouts and fitted beyond: the two meet."""
    draw = random.Random(4)
    for _ in range(20):
        counts = [task(8, draw.choice([0, 0, 1, 3, 5, 8])) for _ in range(12)]
        fit = fit_tasks(counts)
        shares = [signal_share(counts, size, fit) for size in GROUP_SIZES]
        assert [share.method for share in shares] == ["counted"] * 7 + ["fitted"] * 8
        values = [share.value or 0.0 for share in shares]
        assert values == sorted(values)
        assert all(share.low <= (share.value or 0.0) <= share.high for share in shares)
    assert signal_share([task(250, 125)] * 40, 256).value == pytest.approx(1.0)


def test_the_interval_of_a_fit_covers_the_truth_as_often_as_it_says() -> None:
    """Over 200 worlds drawn from the prior's middle, 24 tasks of 4 rollouts each."""
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
        for i in range(12):
            all_pass *= (a + i) / (a + b + i)
            all_fail *= (b + i) / (a + b + i)
        share = signal_share(counts, 12)
        covered += share.low <= 1 - all_pass - all_fail <= share.high
    assert 0.91 <= covered / worlds <= 0.99


def test_tasks_with_a_rollout_missing_are_left_out_of_the_count() -> None:
    share = signal_share([task(8, 4), task(8, 4), task(7, 0, missing=1)], 8)
    assert (share.method, share.num_tasks, share.value) == ("counted", 2, 1.0)
    mostly_missing = signal_share([task(8, 4), task(3, 1), task(3, 2), task(3, 0)], 8)
    assert (mostly_missing.method, mostly_missing.num_tasks) == ("fitted", 4)


def test_without_two_rollouts_of_a_task_nothing_is_known() -> None:
    for counts in ([], [task(1, 1)], [task(0, 0, missing=4)]):
        share = signal_share(counts, 4)
        assert (share.value, share.low, share.high, share.num_tasks) == (None, 0.0, 1.0, 0)


def test_bands_add_up_and_follow_the_tasks() -> None:
    extremes = fit_tasks([task(16, 0)] * 30 + [task(16, 16)] * 10).bands()
    assert [band.low for band in extremes] == [0.0, *BANDS]
    assert sum(band.share for band in extremes) == pytest.approx(1.0, abs=1e-9)
    assert extremes[0].share == pytest.approx(0.75, abs=0.06)
    assert extremes[-1].share == pytest.approx(0.25, abs=0.06)
    middle = fit_tasks([task(16, 8)] * 40).bands()
    assert middle[2].share > 0.95


def test_the_incomplete_beta_by_hand() -> None:
    assert beta_below(0.3, 1.0, 1.0) == pytest.approx(0.3, abs=1e-12)  # uniform
    assert beta_below(0.3, 2.0, 1.0) == pytest.approx(0.09, abs=1e-12)  # x squared
    assert beta_below(0.3, 1.0, 3.0) == pytest.approx(1 - 0.7**3, abs=1e-12)
    assert (beta_below(0.0, 2.0, 3.0), beta_below(1.0, 2.0, 3.0)) == (0.0, 1.0)
