"""E-values against exact integrals and the property that makes them valid; Holm's procedure."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.stats.evidence import holm, log_e_value

UP, DOWN = Fraction(1), Fraction(-1)
shares = st.fractions(min_value=-1, max_value=1, max_denominator=8)


def integral(num_gained: int, num_lost: int) -> float:
    """Integrate 6 x (1-x) (1+x)^g (1-x)^l over [0, 1], term by term."""
    terms = [Fraction(math.comb(num_gained, k)) for k in range(num_gained + 1)]
    total = Fraction(0)
    for power, coefficient in enumerate(terms):
        # The integral of x^a (1-x)^b is a! b! / (a+b+1)!.
        a, b = power + 1, num_lost + 1
        beta = Fraction(math.factorial(a) * math.factorial(b), math.factorial(a + b + 1))
        total += 6 * coefficient * beta
    return float(total)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (0, 1), (5, 2), (20, 8), (60, 30)])
def test_the_value_is_close_to_the_integral_over_all_stakes(gained: int, lost: int) -> None:
    found = math.exp(log_e_value([UP] * gained + [DOWN] * lost))
    assert found == pytest.approx(integral(gained, lost), rel=1e-3)


def test_no_change_is_no_evidence() -> None:
    assert log_e_value([]) == pytest.approx(0.0, abs=1e-12)
    assert log_e_value([Fraction(0)] * 50) == pytest.approx(0.0, abs=1e-12)


@given(st.lists(shares, max_size=30), shares.filter(bool), shares.filter(bool))
def test_the_expected_value_of_a_fair_task_is_the_value_before_it(
    seen: list[Fraction], gain: Fraction, loss: Fraction
) -> None:
    """Whatever was seen: the next task gains with the probability that makes its mean 0."""
    gain, loss = abs(gain), -abs(loss)
    chance = float(-loss / (gain - loss))
    now = math.exp(log_e_value(seen))
    then = chance * math.exp(log_e_value([*seen, gain]))
    then += (1.0 - chance) * math.exp(log_e_value([*seen, loss]))
    assert then == pytest.approx(now, rel=1e-9)


def test_the_chance_of_ever_reaching_a_level_is_below_its_inverse() -> None:
    """All 2^16 histories of 16 fair tasks, looked at after each: Ville's inequality exactly."""
    reached = {2.0: 0, 4.0: 0, 20.0: 0}
    values = {
        (gained, lost): math.exp(log_e_value([UP] * gained + [DOWN] * lost))
        for gained in range(17)
        for lost in range(17 - gained)
    }
    for history in product((0, 1), repeat=16):
        gained, best = 0, 1.0
        for step, gain in enumerate(history, 1):
            gained += gain
            best = max(best, values[gained, step - gained])
        for level in reached:
            reached[level] += best >= level
    for level, number in reached.items():
        assert 0 < number / 2**16 <= 1.0 / level


@given(st.permutations([UP] * 5 + [DOWN] * 3 + [Fraction(1, 2)] * 2))
def test_the_order_of_tasks_changes_nothing(order: list[Fraction]) -> None:
    assert log_e_value(order) == pytest.approx(log_e_value(sorted(order)), abs=1e-12)


def test_holms_procedure_as_in_a_worked_example() -> None:
    """0.01 x 4, 0.02 x 3, 0.03 x 2 raised to the one before, and 0.005 first."""
    found = holm({"a": 0.02, "b": 0.01, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"d": 0.02, "b": 0.03, "a": 0.04, "c": 0.04})


def test_an_adjusted_value_never_exceeds_one_nor_falls_below_a_smaller_ones() -> None:
    assert holm({"a": 0.9, "b": 0.6}) == {"a": 1.0, "b": 1.0}
    assert holm({"a": 0.01, "b": 0.011}) == pytest.approx({"a": 0.02, "b": 0.02})
    assert holm({}) == {}
