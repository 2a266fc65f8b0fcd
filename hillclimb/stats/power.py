"""Power analysis: the smallest change of a pass rate that an eval set of a given size can show.

Power 0.8; significance 0.05 two-sided where no other level is named. Normal approximations: for a
dozen tasks or fewer they are rough, and optimistic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

ONE_SIDED_LEVEL = 0.025
"""Of a two-sided test at 0.05."""
Z_SIGNIFICANCE = 1.959963984540054
"""Quantile of the normal distribution at 1 - 0.05/2."""
Z_POWER = 0.8416212335729143
"""Quantile at 0.8."""
MIN_CHANGED = 6
"""Tasks that must change, all in one direction, before McNemar's exact test can reach p < 0.05:
2 * 0.5^6 = 0.031, while five give 0.0625. See `min_changed` for other levels."""


def min_changed(one_sided_level: float) -> int:
    """Return the smallest m with 0.5^m at or below a one-sided level in (0, 1)."""
    return math.ceil(-math.log2(one_sided_level))


def _z(one_sided_level: float) -> float:
    """Return the normal quantile; the constant for the usual level, so that its digits stay."""
    if one_sided_level == ONE_SIDED_LEVEL:
        return Z_SIGNIFICANCE
    return NormalDist().inv_cdf(1.0 - one_sided_level)


def unpaired_size(before: float, after: float) -> float:
    """Return the tasks per arm to tell two pass rates apart on *different* tasks.

    (z_a sqrt(2 m (1-m)) + z_b sqrt(p1 (1-p1) + p2 (1-p2)))^2 / (p2 - p1)^2 with m the mean rate:
    Fleiss, Levin and Paik 2003, *Statistical Methods for Rates and Proportions*, eq. 4.14,
    without continuity correction.
    """
    mean = (before + after) / 2.0
    spread = Z_SIGNIFICANCE * math.sqrt(2.0 * mean * (1.0 - mean))
    spread += Z_POWER * math.sqrt(before * (1.0 - before) + after * (1.0 - after))
    return (spread / (after - before)) ** 2


def paired_size(gain: float, lost: float, *, level: float = ONE_SIDED_LEVEL) -> float:
    """Return the tasks to show a net gain on the *same* tasks before and after.

    With a share `lost` of tasks going from pass to fail and `lost + gain` the other way, the
    changed share is c = gain + 2 lost, and n = (z_a sqrt(c) + z_b sqrt(c - gain^2))^2 / gain^2:
    Connor 1987, *Biometrics* 43, 207-211, for McNemar's test. `level` is one-sided.
    """
    changed = gain + 2.0 * lost
    spread = _z(level) * math.sqrt(changed) + Z_POWER * math.sqrt(changed - gain * gain)
    return (spread / gain) ** 2


def detectable_paired(
    num_tasks: int, *, lost: float, level: float = ONE_SIDED_LEVEL
) -> float | None:
    """Return the smallest net gain that `num_tasks` tasks show, measured before and after.

    None if they show none: the gain would have to exceed what is possible, or there are fewer than
    `min_changed` tasks. `level` is one-sided.
    """
    if num_tasks < min_changed(level):
        return None
    return _smallest(
        lambda gain: paired_size(gain, lost, level=level), num_tasks, most=1.0 - 2.0 * lost
    )


def detectable_unpaired(num_tasks: int, *, before: float) -> float | None:
    """Return the smallest rise over `before` that `num_tasks` tasks per arm show, or None."""
    return _smallest(
        lambda gain: unpaired_size(before, before + gain), num_tasks, most=1.0 - before
    )


def _smallest(size: Callable[[float], float], num_tasks: int, *, most: float) -> float | None:
    """Find the change at which the size needed (which falls with the change) is `num_tasks`."""
    if most <= 0.0:
        return None
    low, high = 0.0, most
    if num_tasks < 1 or size(high) > num_tasks:
        return None
    for _ in range(60):
        middle = (low + high) / 2.0
        if middle > 0.0 and size(middle) <= num_tasks:
            high = middle
        else:
            low = middle
    return high
