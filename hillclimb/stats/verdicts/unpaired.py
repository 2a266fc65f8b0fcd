"""The exact test of a share that was measured on different tasks. No random numbers are drawn."""

from __future__ import annotations

import math
from fractions import Fraction


def fisher_exact(showing: tuple[int, int], tasks: tuple[int, int]) -> float:
    """Two-sided p-value of Fisher's exact test: `showing` of `tasks` on either side.

    The sum of all tables with the same margins that are no more likely than the observed one
    (Fisher 1934; the same sum as in R and scipy).

    Raises:
        ValueError: not 0 <= showing <= tasks.
    """
    (a, b), (m, n) = showing, tasks
    if not (0 <= a <= m and 0 <= b <= n):
        raise ValueError(f"{a} of {m} and {b} of {n} tasks are no shares")
    total = a + b
    ways = [math.comb(m, x) * math.comb(n, total - x) for x in _possible(total, m, n)]
    observed = math.comb(m, a) * math.comb(n, b)
    return float(Fraction(sum(each for each in ways if each <= observed), sum(ways)))


def _possible(total: int, m: int, n: int) -> range:
    return range(max(0, total - n), min(total, m) + 1)
