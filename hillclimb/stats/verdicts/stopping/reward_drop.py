"""Fall of the mean reward: Welch's test between the best window of steps and the newest one.

The unit is the mean reward of one step, whose prompts differ from those of the next. Neighbouring
steps resemble each other, because the policy is nearly the same: the variance of a window's mean is
multiplied by (1 + r) / (1 - r), and the degrees of freedom are divided by it, with the correlation
r of neighbours inside all windows, corrected for the bias of short ones (Kendall 1954,
*Biometrika* 41, 403-404). The p-value is one-sided (Welch 1947, *Biometrika* 34, 28-35) and
multiplied by the number of earlier windows, from which the best one is chosen, and by the number of
looks, one after every step of the run (Bonferroni). How often it is wrong is measured by
`benchmarks/statistics/reward_collapse.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, variance

MOST_CORRELATED = 0.9
CONSTANT = 1e-30
"""Below this variance of the means the windows are constant, but for rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardDrop:
    """Fall from the best earlier window to the newest one; rewards in [0, 1]."""

    best: float
    """Mean reward of the best earlier window."""
    newest: float
    """Mean reward of the newest window."""
    best_end: int
    """Place of the last step of the best window, from 0."""
    num_windows: int
    """Earlier windows."""
    correlation: float
    """Of the rewards of neighbouring steps, in [0, 0.9]."""
    p_value: float
    """One-sided, corrected for the choice of the window and for all looks."""

    @property
    def size(self) -> float:
        """Fall of the mean reward; negative for a rise."""
        return self.best - self.newest


def reward_drop(rewards: Sequence[float], *, window: int, num_looks: int) -> RewardDrop | None:
    """Test the newest `window` rewards against the best of the windows before, side by side.

    None with fewer than two windows. Earlier windows end where the newest one begins, and do not
    overlap.

    Args:
        rewards: mean reward of each step, oldest first.
        window: steps per window, at least 2.
        num_looks: looks of the run, at least 1.
    """
    newest = rewards[-window:]
    ends = range(len(rewards) - window, window - 1, -window)
    if not ends:
        return None
    end = max(ends, key=lambda end: fmean(rewards[end - window : end]))
    best = rewards[end - window : end]
    windows = [*(rewards[end - window : end] for end in ends), newest]
    correlation = neighbour_correlation(windows)
    p_value = welch_greater(best, newest, correlation=correlation)
    p_value *= len(ends) * num_looks
    return RewardDrop(
        best=fmean(best),
        newest=fmean(newest),
        best_end=end - 1,
        num_windows=len(ends),
        correlation=correlation,
        p_value=min(1.0, p_value),
    )


def neighbour_correlation(windows: Sequence[Sequence[float]]) -> float:
    """Return the correlation of neighbours within windows of one size, in [0, 0.9].

    Deviations from a window's own mean correlate too little: by about (1 + 3 r) / n in n steps.
    """
    products, squares = 0.0, 0.0
    for values in windows:
        mean = fmean(values)
        gaps = [value - mean for value in values]
        products += math.fsum(a * b for a, b in pairwise(gaps))
        squares += math.fsum(gap * gap for gap in gaps)
    if squares == 0.0:
        return 0.0
    size = len(windows[0])
    raised = products / squares + 1.0 / size
    return min(MOST_CORRELATED, max(0.0, raised / (1.0 - 3.0 / max(size, 6))))


def welch_greater(
    first: Sequence[float], second: Sequence[float], *, correlation: float = 0.0
) -> float:
    """Return the one-sided p-value of "the mean of `first` is not above that of `second`"."""
    inflation = (1.0 + correlation) / (1.0 - correlation)
    gap = fmean(first) - fmean(second)
    parts = [inflation * variance(values) / len(values) for values in (first, second)]
    if sum(parts) < CONSTANT:
        return 0.0 if gap > 0.0 else 1.0
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1) for part, values in zip(parts, (first, second), strict=True)
    )
    return student_upper_tail(gap / math.sqrt(sum(parts)), max(1.0, freedom / inflation))


def student_upper_tail(t: float, freedom: float) -> float:
    """Return the chance that Student's t exceeds `t`: I_x(v/2, 1/2) / 2 with x = v / (v + t^2)."""
    tail = _beta(freedom / (freedom + t * t), freedom / 2.0, 0.5) / 2.0
    return tail if t > 0.0 else 1.0 - tail


def _beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b) (*DLMF* 8.17.8 and 8.17.4)."""
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - _beta(1.0 - x, b, a)
    total = term = 1.0
    j = 0
    while term > 1e-17 * total:
        term *= (a + b + j) / (a + 1.0 + j) * x
        total += term
        j += 1
    log_scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(a)
    return total * math.exp(log_scale + a * math.log(x) + b * math.log1p(-x))
