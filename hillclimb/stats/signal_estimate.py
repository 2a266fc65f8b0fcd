"""How many groups of rollouts will teach something: the share whose members do not all agree.

GRPO learns nothing from a group that passes as a whole or fails as a whole. For a task that passes
with probability p, a group of G rollouts does neither with probability 1 - p^G - (1-p)^G. Putting
the measured share of passes in for p is biased when a task was tried only a few times; so groups
no larger than what was tried are counted (`signal_of_task`, unbiased), and for larger ones the
distribution of p over tasks is fitted (`fit_tasks`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import accumulate
from statistics import fmean
from typing import Literal

from trainer.contract.passrate import TaskCount, interval

GROUP_SIZES = tuple(range(2, 17))
"""Rollouts per prompt for which the share of groups with signal is given."""
BANDS = (0.05, 0.25, 0.75, 0.95)
"""Where the distribution of the pass probability over tasks is cut into bands."""

_NUM_MEANS, _NUM_CORRELATIONS = 64, 32
_NEGLIGIBLE = 1e-7
"""Share of the posterior that a point of the grid must have to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalShare:
    """Expected share of groups of one size whose members do not all agree, in [0, 1]."""

    group_size: int
    value: float | None
    """Mean over tasks; None where no task has two graded rollouts."""
    low: float
    """Lower end of the 95 % interval (0 when there is no value)."""
    high: float
    """Upper end of the 95 % interval (1 when there is no value)."""
    num_tasks: int
    """Tasks that entered the value."""
    method: Literal["counted", "fitted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A range of the pass probability, and the share of tasks estimated to lie in it."""

    low: float
    high: float
    share: float


@dataclass(frozen=True, slots=True)
class _Beta:
    """One candidate distribution of p over tasks, Beta(a, b), and its posterior weight."""

    a: float
    b: float
    weight: float

    def signal(self, group_size: int) -> float:
        """Probability that a group of a task drawn from it does not all agree."""
        all_pass = all_fail = 1.0
        for i in range(group_size):
            all_pass *= (self.a + i) / (self.a + self.b + i)
            all_fail *= (self.b + i) / (self.a + self.b + i)
        return max(0.0, 1.0 - all_pass - all_fail)


@dataclass(frozen=True, slots=True)
class TaskFit:
    """The pass probability over tasks: beta distributions, weighted by how well they explain it.

    The number of passes of a task is beta-binomial. Prior: Jeffreys' for the mean (uniform in the
    arcsine of its root) and uniform for the correlation 1 / (a + b + 1) of two rollouts of a task.
    The posterior is summed up over a fixed grid: no search, no random numbers.
    """

    candidates: tuple[_Beta, ...]

    def signal(self, group_size: int) -> tuple[float, float, float]:
        """Return mean and 95 % interval of the share of groups of this size with signal."""
        found = sorted((each.signal(group_size), each.weight) for each in self.candidates)
        mean = math.fsum(value * weight for value, weight in found)
        reached = list(accumulate(weight for _, weight in found))
        low = next(v for (v, _), sum_ in zip(found, reached, strict=True) if sum_ >= 0.025)
        high = next(
            (v for (v, _), sum_ in zip(found, reached, strict=True) if sum_ >= 0.975), found[-1][0]
        )
        return mean, low, high

    def bands(self) -> tuple[Band, ...]:
        """Return the share of tasks whose pass probability lies in each band."""
        edges = (0.0, *BANDS, 1.0)
        below = [
            math.fsum(each.weight * beta_below(edge, each.a, each.b) for each in self.candidates)
            for edge in edges
        ]
        return tuple(
            Band(low=low, high=high, share=max(0.0, more - less))
            for low, high, less, more in zip(edges, edges[1:], below, below[1:], strict=False)
        )


def signal_of_task(num_graded: int, num_passed: int, group_size: int) -> float:
    """Unbiased estimate of 1 - p^G - (1-p)^G from n graded rollouts of which c passed.

    1 - [C(c, G) + C(n-c, G)] / C(n, G): the share of all groups of G that can be drawn from the n
    rollouts whose members do not all agree (as pass@k is the share of draws with a pass).

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= G <= n.
    """
    if not 0 <= num_passed <= num_graded or not 1 <= group_size <= num_graded:
        raise ValueError(
            f"groups of {group_size} from {num_graded} rollouts with {num_passed} passes are"
            " undefined"
        )
    alike = math.comb(num_passed, group_size) + math.comb(num_graded - num_passed, group_size)
    return 1.0 - alike / math.comb(num_graded, group_size)


def signal_share(
    counts: Sequence[TaskCount], group_size: int, fit: TaskFit | None = None
) -> SignalShare:
    """Return the expected share of groups of this size with signal, over tasks.

    Counted over the tasks with as many graded rollouts where these are at least half of those that
    have two. For larger groups the share without signal shrinks, from the largest size that can be
    counted on, as it does in the distribution fitted to the tasks that have two; the interval is
    the fit's. `fit` spares fitting the same counts again.
    """
    usable = [count for count in counts if count.num_graded >= 2]
    if not usable:
        return _no_share(group_size)
    sizes = sorted((count.num_graded for count in usable), reverse=True)
    largest = sizes[(len(sizes) - 1) // 2]
    if group_size <= largest:
        return _counted(usable, group_size)
    fit = fit or fit_tasks(usable)
    base = _counted(usable, largest).value or 0.0
    mean, low, high = fit.signal(group_size)
    without = 1.0 - fit.signal(largest)[0]
    value = 1.0 - (1.0 - base) * ((1.0 - mean) / without if without else 1.0)
    return SignalShare(
        group_size=group_size,
        value=value,
        low=min(low, value),
        high=max(high, value),
        num_tasks=len(usable),
        method="fitted",
    )


def _counted(counts: Sequence[TaskCount], group_size: int) -> SignalShare:
    whole = [count for count in counts if count.num_graded >= group_size]
    values = [signal_of_task(c.num_graded, c.num_passed, group_size) for c in whole]
    trials = sum(count.num_graded for count in whole) // group_size
    low, high = interval(values, max_trials=trials)
    return SignalShare(
        group_size=group_size,
        value=fmean(values),
        low=low,
        high=high,
        num_tasks=len(whole),
        method="counted",
    )


def fit_tasks(counts: Iterable[TaskCount]) -> TaskFit:
    """Fit the distribution of the pass probability over tasks; see `TaskFit`."""
    alike = Counter((c.num_graded, c.num_passed) for c in counts if c.num_graded)
    points = _grid()
    columns = [(times, _log_likelihoods(n, c)) for (n, c), times in alike.items()]
    logs = [math.fsum(times * column[i] for times, column in columns) for i in range(len(points))]
    best = max(logs)
    weights = [math.exp(each - best) for each in logs]
    floor = _NEGLIGIBLE * math.fsum(weights)
    kept = [(a, b, w) for (a, b), w in zip(points, weights, strict=True) if w >= floor]
    total = math.fsum(weight for _, _, weight in kept)
    return TaskFit(tuple(_Beta(a, b, weight / total) for a, b, weight in kept))


def beta_below(x: float, a: float, b: float) -> float:
    """Probability that a Beta(a, b) variable is at most `x`: the regularised incomplete beta.

    By the continued fraction of DLMF 8.17.22, on the side of the mean where it converges fast.
    """
    if x <= 0.0 or x >= 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):
        return 1.0 - beta_below(1.0 - x, b, a)
    log_front = (
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log1p(-x)
        - math.log(a)
    )
    return min(1.0, math.exp(log_front) / _continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """Value of 1 + d1/(1 + d2/(1 + ...)) by Steed's method (forwards, no division by zero)."""
    tiny, value, forward, backward = 1e-300, 1.0, 1.0, 0.0
    for step in range(1, 2_000):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        backward = 1.0 / ((1.0 + term * backward) or tiny)
        forward = (1.0 + term / forward) or tiny
        change = forward * backward
        value *= change
        if abs(change - 1.0) < 1e-13:
            break
    return value


@cache
def _grid() -> Sequence[tuple[float, float]]:
    """Return (a, b) of every candidate: equal steps of the prior are equal weights."""
    found = []
    for i in range(_NUM_MEANS):
        mean = math.sin(0.5 * math.pi * (i + 0.5) / _NUM_MEANS) ** 2
        for j in range(_NUM_CORRELATIONS):
            total = _NUM_CORRELATIONS / (j + 0.5) - 1.0
            found.append((mean * total, (1.0 - mean) * total))
    return tuple(found)


@lru_cache(maxsize=64)
def _log_likelihoods(num_graded: int, num_passed: int) -> Sequence[float]:
    """Return that of every candidate: most tasks of a run are tried equally often."""
    return tuple(_log_likelihood(a, b, num_graded, num_passed) for a, b in _grid())


def _log_likelihood(a: float, b: float, num_graded: int, num_passed: int) -> float:
    """Log-probability of the passes of a task, without the binomial coefficient."""
    failed = num_graded - num_passed
    return (
        math.lgamma(a + num_passed)
        - math.lgamma(a)
        + math.lgamma(b + failed)
        - math.lgamma(b)
        - math.lgamma(a + b + num_graded)
        + math.lgamma(a + b)
    )


def _no_share(group_size: int) -> SignalShare:
    return SignalShare(
        group_size=group_size, value=None, low=0.0, high=1.0, num_tasks=0, method="counted"
    )
