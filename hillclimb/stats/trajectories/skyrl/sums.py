"""Sums, means and variances rounded as numpy rounds them, without numpy.

numpy adds an array in pairs (`pairwise_sum` in its loops_utils): a plain sum differs in the last
digit, and then a metric is not byte-equal to the one that SkyRL wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 128
LANES = 8


def pairwise_sum(values: Sequence[float]) -> float:
    """Return numpy's sum of a contiguous float64 array."""
    count = len(values)
    if count < LANES:
        total = 0.0
        for value in values:
            total += value
        return total
    if count > BLOCK:
        half = count // 2
        half -= half % LANES
        return pairwise_sum(values[:half]) + pairwise_sum(values[half:])
    lanes = list(values[:LANES])
    whole = count - count % LANES
    for start in range(LANES, whole, LANES):
        for lane in range(LANES):
            lanes[lane] += values[start + lane]
    first = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
    total = first + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]))
    for value in values[whole:]:
        total += value
    return total


def mean(values: Sequence[float]) -> float:
    """Return `numpy.mean` of at least one value."""
    return pairwise_sum(values) / len(values)


def variance(values: Sequence[float]) -> float:
    """Return `numpy.var` (population variance) of at least one value."""
    centre = mean(values)
    return mean([(value - centre) * (value - centre) for value in values])
