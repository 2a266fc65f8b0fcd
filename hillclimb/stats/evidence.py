"""E-values: evidence that a mean difference is positive, valid however often one looks.

Somebody who bets on gains multiplies a capital of 1 by 1 + λ d with every task, where d in [-1, 1]
is its difference and λ the staked share. If the expected difference of a task, given those before,
is at most 0, no strategy makes the capital grow on average, and the chance that it *ever* reaches
1/a is at most a (Ville 1939). The e-value is the capital of a bettor who divides the first stake
among all λ. Source: Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting", JRSS B 86(1), section 4. The value depends on the differences, not on their order; but
the order in which tasks are looked at must not depend on their outcomes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

NUM_STAKES = 200
_STAKES = tuple((index + 0.5) / NUM_STAKES for index in range(NUM_STAKES))
_PRIOR = tuple(stake * (1.0 - stake) for stake in _STAKES)
"""Shape of Beta(2, 2): stakes near 0 gain nothing, and stakes near 1 lose all with one lost task.
A sum over finitely many stakes is exact evidence itself, not the approximation of an integral."""
_LOG_WEIGHTS = tuple(math.log(weight / math.fsum(_PRIOR)) for weight in _PRIOR)


def log_e_value(differences: Iterable[Fraction] | Mapping[Fraction, int]) -> float:
    """Return the natural logarithm of the e-value against "the mean difference is at most 0".

    `differences` are those of the tasks, or the number of tasks with each difference.
    """
    growths = [
        [number * log for log in _growths(float(step))]
        for step, number in Counter(differences).items()
        if step
    ]
    logs = [math.fsum(parts) for parts in zip(_LOG_WEIGHTS, *growths, strict=True)]
    top = max(logs)
    return top + math.log(math.fsum(math.exp(log - top) for log in logs))


@lru_cache(maxsize=1024)
def _growths(step: float) -> tuple[float, ...]:
    """Return by how much one task with this difference multiplies each stake's capital (log)."""
    return tuple(math.log1p(stake * step) for stake in _STAKES)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return adjusted p-values: rejecting those up to a level keeps the family's error below it.

    The step-down procedure of Holm 1979, *Scandinavian Journal of Statistics* 6, 65-70. It needs no
    independence: environments may share a policy and tasks.
    """
    adjusted: dict[str, float] = {}
    running = 0.0
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for rank, name in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * p_values[name]))
        adjusted[name] = running
    return adjusted
