"""Tests of a change measured on the same tasks before and after. No random numbers are drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

MAX_EXACT_BITS = 10**10
"""Bits moved up to which the sign-flip distribution is computed exactly (half a second)."""


def mcnemar_exact(num_gained: int, num_lost: int) -> float:
    """Two-sided exact p-value of McNemar's test; 1.0 when no task changed.

    Under the null hypothesis every changed task went either way with probability one half.
    """
    changed = num_gained + num_lost
    tail = term = 1
    for i in range(min(num_gained, num_lost)):
        term = term * (changed - i) // (i + 1)
        tail += term
    return min(1.0, float(Fraction(2 * tail, 2**changed)))


def sign_flip_p_value(differences: Sequence[Fraction]) -> float:
    """Two-sided p-value of "the mean difference is zero" under flips of each difference's sign.

    The permutation distribution is enumerated exactly; for differences of -1, 0 and 1 the result
    equals `mcnemar_exact`. Where that would take too long (thousands of changed tasks) it is
    replaced by the normal distribution with the same variance, the sum of squared differences.
    """
    changed = [difference for difference in differences if difference]
    scale = math.lcm(*(difference.denominator for difference in changed))
    steps = [int(abs(difference) * scale) for difference in changed]
    observed = abs(sum(int(difference * scale) for difference in changed))
    if observed == 0:
        return 1.0
    if len(steps) * (len(steps) + 2) * (sum(steps) + 1) <= MAX_EXACT_BITS:
        return _exact(steps, observed)
    deviation = math.sqrt(sum(step * step for step in steps))
    return math.erfc(observed / deviation / math.sqrt(2.0))


def _exact(steps: Sequence[int], observed: int) -> float:
    """Share of sign patterns with a sum of at least `observed` in size (`observed` > 0).

    The generating function, the product of (1 + x^step), is one integer with x = 2^slot: no
    coefficient exceeds 2^len(steps), so slots never touch, and a remainder adds them up.
    """
    slot = len(steps) + 2
    patterns = 1
    for step in steps:
        patterns += patterns << (step * slot)
    first = (sum(steps) + observed + 1) // 2
    tail = (patterns >> (first * slot)) % ((1 << slot) - 1)
    return float(Fraction(2 * tail, 2 ** len(steps)))
