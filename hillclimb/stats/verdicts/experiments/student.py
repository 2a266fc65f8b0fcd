"""The quantile of Student's distribution that makes 95 % intervals of a few runs."""

from __future__ import annotations

from functools import lru_cache

from hillclimb.stats.intervals import CONFIDENCE_Z, TAIL
from hillclimb.stats.verdicts.stopping.reward_drop import student_upper_tail

MOST = 1e6
"""Degrees of freedom from which the normal quantile is the same to 1e-6."""


@lru_cache(maxsize=1024)
def t_quantile(freedom: float) -> float:
    """Two-sided 95 % quantile for `freedom` degrees of freedom, which need not be whole.

    Bisection of the tail probability.

    Raises:
        ValueError: `freedom` is not above 0.
    """
    if not freedom > 0.0:
        raise ValueError(f"there is no t distribution with {freedom} degrees of freedom")
    if freedom >= MOST:
        return CONFIDENCE_Z
    low, high = 0.0, 1.0
    while student_upper_tail(high, freedom) > TAIL:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = (low + high) / 2.0
        if student_upper_tail(middle, freedom) > TAIL:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0
