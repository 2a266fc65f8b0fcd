"""The sizes that lint states are those of the formulas it cites."""

from __future__ import annotations

import math
import random
from statistics import NormalDist

import pytest

from hillclimb.stats.paired import mcnemar_exact
from hillclimb.stats.power import (
    MIN_CHANGED,
    Z_POWER,
    Z_SIGNIFICANCE,
    detectable_paired,
    detectable_unpaired,
    paired_size,
    unpaired_size,
)


def test_the_quantiles_are_those_of_the_normal_distribution() -> None:
    assert pytest.approx(NormalDist().inv_cdf(0.975), abs=1e-12) == Z_SIGNIFICANCE
    assert pytest.approx(NormalDist().inv_cdf(0.8), abs=1e-12) == Z_POWER


def test_ten_points_from_43_percent_take_391_tasks_per_arm() -> None:
    """The published log's 194 eval tasks were half of what its claim needed.

    By hand: m = 0.48; 1.95996 sqrt(2 * 0.48 * 0.52) = 1.38479;
    0.84162 sqrt(0.2451 + 0.2491) = 0.59165; (1.97644 / 0.1)^2 = 390.6.
    """
    assert unpaired_size(0.43, 0.53) == pytest.approx(390.63, abs=0.01)
    assert detectable_unpaired(391, before=0.43) == pytest.approx(0.1, abs=1e-4)
    assert detectable_unpaired(194, before=0.43) == pytest.approx(0.141, abs=0.001)


def test_the_paired_size_is_that_of_the_formula() -> None:
    """Gain 0.10, 0.05 lost: c = 0.2; 1.95996 sqrt(0.2) = 0.87652;

    0.84162 sqrt(0.2 - 0.01) = 0.36685; (1.24337 / 0.1)^2 = 154.6.
    """
    assert paired_size(0.10, 0.05) == pytest.approx(154.60, abs=0.01)
    assert detectable_paired(155, lost=0.05) == pytest.approx(0.1, abs=2e-4)


def test_six_tasks_must_change_before_the_exact_test_is_significant() -> None:
    assert mcnemar_exact(MIN_CHANGED, 0) < 0.05 <= mcnemar_exact(MIN_CHANGED - 1, 0)
    assert detectable_paired(MIN_CHANGED - 1, lost=0.0) is None
    assert detectable_paired(2, lost=0.05) is None
    assert detectable_unpaired(1, before=0.5) is None


@pytest.mark.parametrize("num_tasks", [42, 80, 200])
def test_the_detectable_change_is_detected_about_four_times_in_five(num_tasks: int) -> None:
    """Simulated with the exact test that verdicts use, which is stricter than the formula."""
    gain = detectable_paired(num_tasks, lost=0.05)
    assert gain is not None
    rng = random.Random(num_tasks)
    found, rounds = 0, 1500
    for _ in range(rounds):
        draws = [rng.random() for _ in range(num_tasks)]
        gained = sum(draw < gain + 0.05 for draw in draws)
        lost = sum(draw >= 0.95 for draw in draws)
        found += gained > lost and mcnemar_exact(gained, lost) < 0.05
    assert 0.68 < found / rounds < 0.87


@pytest.mark.parametrize("lost", [0.0, 0.05, 0.2])
def test_more_tasks_show_smaller_changes(lost: float) -> None:
    changes = [detectable_paired(n, lost=lost) for n in (5, 10, 20, 60, 200, 1000, 10_000)]
    shown = [change for change in changes if change is not None]
    assert len(shown) >= 4
    assert shown == sorted(shown, reverse=True)
    assert all(0.0 < change <= 1.0 - 2 * lost for change in shown)
    assert math.isclose(paired_size(shown[-1], lost), 10_000, rel_tol=1e-6)


@pytest.mark.parametrize(("before", "gain"), [(0.0, 0.5), (0.5, 0.5), (0.2, 0.3)])
def test_the_detectable_rise_takes_as_many_tasks_as_there_are(before: float, gain: float) -> None:
    """The search ends where the formula says so, up to the largest rise that there is."""
    needed = unpaired_size(before, before + gain)
    found = detectable_unpaired(math.ceil(needed), before=before)
    assert found is not None
    assert found <= gain
    assert unpaired_size(before, before + found) == pytest.approx(math.ceil(needed), rel=1e-6)


def test_a_rise_from_zero_to_one_takes_two_tasks_in_each_arm() -> None:
    """m = 1/2: (1.95996 sqrt(0.5) + 0.84162 * 0)^2 = 1.9207 of it, so two; none is one too few."""
    assert unpaired_size(0.0, 1.0) == pytest.approx(1.92073, abs=1e-5)
    assert detectable_unpaired(2, before=0.0) is not None
    assert detectable_unpaired(1, before=0.0) is None
    assert detectable_unpaired(0, before=0.0) is None


def test_a_paired_gain_has_room_only_beside_what_is_lost() -> None:
    """All of six tasks gained: 3.8415 tasks by the formula; with 0.4 lost 0.2 is the most."""
    assert paired_size(1.0, 0.0) == pytest.approx(3.84146, abs=1e-5)
    six = detectable_paired(6, lost=0.0)
    assert six is not None
    assert paired_size(six, 0.0) == pytest.approx(6.0, rel=1e-9)
    # c = 1: (1.95996 + 0.84162 sqrt(0.96))^2 / 0.04 = 193.85
    assert paired_size(0.2, 0.4) == pytest.approx(193.85, abs=0.01)
    assert detectable_paired(193, lost=0.4) is None
    most = detectable_paired(194, lost=0.4)
    assert most is not None
    assert 0.199 < most <= 0.2


def test_where_no_gain_is_possible_none_is_shown() -> None:
    """Half of the tasks lost and half gained leave nothing to gain; so does a rate of 1."""
    assert detectable_paired(6, lost=0.5) is None
    assert detectable_unpaired(100, before=1.0) is None
