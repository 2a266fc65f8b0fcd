"""Shares of groups with signal against an independent implementation in float64."""

import random

import pytest
from scipy import stats

from hillclimb.stats.signal_estimate import signal_of_task


def test_the_counted_share_equals_the_hypergeometric_distribution() -> None:
    draw = random.Random(0)
    for _ in range(300):
        n = draw.randint(2, 60)
        c, size = draw.randint(0, n), draw.randint(1, n)
        passes = stats.hypergeom(n, c, size)
        expected = 1.0 - passes.pmf(size) - passes.pmf(0)
        assert signal_of_task(n, c, size) == pytest.approx(expected, abs=1e-9)
