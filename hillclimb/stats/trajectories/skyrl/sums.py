"""Sums, means and variances rounded as numpy rounds them, without numpy.

numpy adds an array in pairs (`pairwise_sum` in its loops_utils): a plain sum differs in the last
digit, and then a metric is not byte-equal to the one that SkyRL wrote.
"""

from __future__ import annotations

from collections.abc import Sequence

BLOCK = 128
NUM_SUMS = 8


def pairwise_sum(values: Sequence[float]) -> float:
    """Return numpy's sum of a contiguous float64 array."""
    count = len(values)
    if count < NUM_SUMS:
        total = 0.0
        for value in values:
            total += value
        return total
    if count > BLOCK:
        half = count // 2
        half -= half % NUM_SUMS
        return pairwise_sum(values[:half]) + pairwise_sum(values[half:])
    sums = list(values[:NUM_SUMS])
    whole = count - count % NUM_SUMS
    for start in range(NUM_SUMS, whole, NUM_SUMS):
        for column in range(NUM_SUMS):
            sums[column] += values[start + column]
    first = (sums[0] + sums[1]) + (sums[2] + sums[3])
    total = first + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
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
