"""The quantile of Student's distribution that makes 95 % intervals of a few runs."""

from __future__ import annotations

import math
from functools import lru_cache

from hillclimb.stats.intervals import CONFIDENCE_Z

MOST = 1e6
"""Degrees of freedom from which the normal quantile is the same to 1e-6."""


@lru_cache(maxsize=1024)
def t_quantile(freedom: float) -> float:
    """Two-sided 95 % quantile for `freedom` degrees of freedom, which need not be whole.

    Bisection of the tail probability I_x(v/2, 1/2) with x = v / (v + t^2) (*DLMF* 8.17).

    Raises:
        ValueError: `freedom` is not above 0.
    """
    if not freedom > 0.0:
        raise ValueError(f"there is no t distribution with {freedom} degrees of freedom")
    if freedom >= MOST:
        return CONFIDENCE_Z
    low, high = 0.0, 1.0
    while _tail(high, freedom) > 0.05:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = (low + high) / 2.0
        if _tail(middle, freedom) > 0.05:
            low = middle
        else:
            high = middle
    return (low + high) / 2.0


def _tail(t: float, freedom: float) -> float:
    """P(|T| > t)."""
    return _incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + t * t))


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised I_x(a, b) by the series of *DLMF* 8.17.8, on the side where it is short."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    log_front = a * math.log(x) + b * math.log1p(-x)
    log_front -= math.log(a) + math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    total = term = 1.0
    j = 0
    while term > 1e-16 * total:
        term *= (a + b + j) / (a + 1.0 + j) * x
        total += term
        j += 1
    return math.exp(log_front) * total
