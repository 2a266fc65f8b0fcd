"""Intervals of pass rates: Wilson's at an effective number of trials, the exact one near 0 and 1.

With one rollout per task a trial is a task. With several, the number of trials that would give the
observed variance of the tasks' values replaces it. No random numbers are drawn. How often these
intervals contain the truth is measured by `benchmarks/statistics/coverage.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean

CONFIDENCE_Z = 1.959963984540054
"""Two-sided 95 % quantile of the normal distribution."""
TAIL = 0.025
"""Chance that the truth lies below (above) a 95 % interval."""
FEW = 10.0
"""Effective passes, or fails, up to which the exact limit is read too."""
PSEUDO_TASKS, PSEUDO_UP_TO = 0.75, 5.0
"""Tasks added at 0 and at 1 to the variance where the values add up to nothing (0 of fails), and
the sum from which none are added; linear in between."""


def points_text(change: float | None, digits: int = 1) -> str:
    """Return a change of a share in percentage points as `+3.2` or `-0.4`; a dash for none.

    The minus is a hyphen in every medium, the web's pages included: what is copied from them is
    read as a number. Adding zero takes the sign off a negative zero.
    """
    return "–" if change is None else f"{round(100 * change, digits) + 0.0:+.{digits}f}"


def interval(values: Sequence[float], *, max_trials: float) -> tuple[float, float]:
    """95 % interval of the mean of per-task values in [0, 1]; (0, 1) for no values.

    The effective number of trials is p(1-p) m / s^2, kept between the number of tasks m and
    `max_trials`: tasks stay the independent unit, yet agreement within a task never narrows the
    interval below that of as many independent trials. A few passes in few tasks show too little
    variance, so p and s^2 count `PSEUDO_TASKS` at 0 and at 1 there. Where the trials have at most
    `FEW` passes or fails, the limit towards 0 or 1 is Clopper and Pearson's if that is wider.
    """
    num_tasks = len(values)
    if not num_tasks:
        return 0.0, 1.0
    mean = fmean(values)
    trials = min(_trials(values, mean), max_trials)
    trials = max(trials, float(num_tasks))
    low, high = wilson(mean, trials)
    passed, failed = mean * trials, (1.0 - mean) * trials
    if passed <= FEW:
        low = min(low, exact_low(passed, failed))
    if failed <= FEW:
        high = max(high, 1.0 - exact_low(failed, passed))
    return low, high


def wilson(share: float, trials: float) -> tuple[float, float]:
    """Wilson's 95 % score interval for a share observed in `trials` trials (Wilson 1927)."""
    z2 = CONFIDENCE_Z * CONFIDENCE_Z
    centre = (share + z2 / (2.0 * trials)) / (1.0 + z2 / trials)
    half = (
        CONFIDENCE_Z
        * math.sqrt(share * (1.0 - share) / trials + z2 / (4.0 * trials * trials))
        / (1.0 + z2 / trials)
    )
    return max(0.0, centre - half), min(1.0, centre + half)


@lru_cache(maxsize=16384)
def exact_low(passed: float, failed: float) -> float:
    """Lower limit of the 95 % interval of Clopper and Pearson 1934, also of parts of trials.

    The quantile at 0.025 of Beta(passed, failed + 1). Its distribution function F is
    q^a (1-q)^b S / (a B(a, b)), with the series S = 1 + sum of prod (a+b+j) / (a+1+j) q
    (*DLMF* 8.17.8); ln F is concave in ln q, so Newton's steps from below rise to the quantile.
    """
    if passed <= 0.0:
        return 0.0
    a, b = passed, failed + 1.0
    log_scale = math.log(a) + math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    log_q = min((math.log(TAIL) + log_scale) / a, 0.0)
    for _ in range(100):
        q = math.exp(log_q)
        if not 0.0 < q < 1.0:
            break
        series = _series(a, b, q)
        log_f = a * log_q + b * math.log1p(-q) - log_scale + math.log(series)
        step = (math.log(TAIL) - log_f) * (1.0 - q) * series / a
        log_q += step
        if abs(step) < 1e-14:
            break
    return math.exp(log_q)


def independent_trials(graded: Iterable[int], rate: float, k: int) -> float:
    """Return the trials that pass@k is worth if every task has the same pass probability.

    `graded` are the numbers of graded rollouts of the m tasks, each at least k; `rate` is pass@k.
    A task's estimate then has the variance V of the U-statistic over its rollouts, and the trials
    are rate (1 - rate) m / mean(V): m for k of k rollouts, m n for n rollouts at k = 1.
    """
    numbers = Counter(graded)
    num_tasks = sum(numbers.values())
    if not 0.0 < rate < 1.0:
        return float(num_tasks)
    total = math.fsum(number * _variance(n, rate, k) for n, number in numbers.items())
    return rate * (1.0 - rate) * num_tasks**2 / total


def _trials(values: Sequence[float], mean: float) -> float:
    """Return the trials that would have the variance of these values."""
    num_tasks = len(values)
    few = num_tasks * min(mean, 1.0 - mean)
    added = PSEUDO_TASKS * max(0.0, 1.0 - few / PSEUDO_UP_TO)
    weight = num_tasks + 2.0 * added
    centre = (num_tasks * mean + added) / weight
    squares = math.fsum((value - centre) ** 2 for value in values)
    squares += added * (centre**2 + (1.0 - centre) ** 2)
    if squares == 0.0:
        return math.inf
    return centre * (1.0 - centre) * num_tasks * (weight - 1.0) / squares


def _series(a: float, b: float, q: float) -> float:
    total = term = 1.0
    j = 0
    while term > 1e-17 * total:
        term *= (a + b + j) / (a + 1.0 + j) * q
        total += term
        j += 1
    return total


def _variance(num_graded: int, rate: float, k: int) -> float:
    """Variance of the unbiased pass@k from rollouts of a task whose pass@k is `rate`."""
    failing = (1.0 - rate) ** (1.0 / k)
    chances = (
        math.comb(num_graded, c) * (1.0 - failing) ** c * failing ** (num_graded - c)
        for c in range(num_graded + 1)
    )
    subsets = math.comb(num_graded, k)
    return math.fsum(
        chance * (1.0 - math.comb(num_graded - c, k) / subsets - rate) ** 2
        for c, chance in enumerate(chances)
    )
