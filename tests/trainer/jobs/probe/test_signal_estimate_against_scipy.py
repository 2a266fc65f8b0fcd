"""Shares of groups with signal against an independent implementation in float64."""

import random

import numpy as np
import pytest
from scipy import integrate, special, stats

from trainer.contract.groupsignal import beta_below, fit_tasks, signal_of_task
from trainer.contract.passrate import TaskCount


def task(graded: int, passed: int) -> TaskCount:
    return TaskCount(
        task_key="t",
        env_key="booking",
        template="x",
        held_out_template=False,
        num_graded=graded,
        num_passed=passed,
        num_missing=0,
    )


def test_the_counted_share_equals_the_hypergeometric_distribution() -> None:
    draw = random.Random(0)
    for _ in range(300):
        n = draw.randint(2, 60)
        c, size = draw.randint(0, n), draw.randint(1, n)
        passes = stats.hypergeom(n, c, size)
        expected = 1.0 - passes.pmf(size) - passes.pmf(0)
        assert signal_of_task(n, c, size) == pytest.approx(expected, abs=1e-9)


def test_the_incomplete_beta_equals_scipys() -> None:
    draw = random.Random(1)
    for _ in range(500):
        a, b = 10 ** draw.uniform(-5, 2), 10 ** draw.uniform(-5, 2)
        x = draw.choice([0.05, 0.25, 0.75, 0.95, draw.random()])
        assert beta_below(x, a, b) == pytest.approx(special.betainc(a, b, x), abs=1e-10)


def test_the_fit_equals_the_posterior_computed_with_numpy() -> None:
    """The same prior and grid, the likelihood by scipy's beta-binomial."""
    draw = random.Random(2)
    counts = [task(n, draw.randint(0, n)) for n in (4, 4, 4, 3, 6, 6, 2) for _ in range(3)]
    means = np.sin(0.5 * np.pi * (np.arange(64) + 0.5) / 64) ** 2
    correlations = (np.arange(32) + 0.5) / 32
    mean, correlation = np.meshgrid(means, correlations, indexing="ij")
    a, b = mean * (1 / correlation - 1), (1 - mean) * (1 / correlation - 1)
    log = sum(stats.betabinom(each.num_graded, a, b).logpmf(each.num_passed) for each in counts)
    weights = np.exp(log - log.max())
    weights /= weights.sum()
    fit = fit_tasks(counts)
    for size in (2, 8, 16, 40):
        signal = (
            1
            - np.exp(special.betaln(a + size, b) - special.betaln(a, b))
            - np.exp(special.betaln(a, b + size) - special.betaln(a, b))
        )
        found = fit.signal(size)
        assert found[0] == pytest.approx((weights * signal).sum(), abs=1e-4)
        order = np.argsort(signal, axis=None)
        reached = np.cumsum(weights.ravel()[order])
        for value, quantile in zip(found[1:], (0.025, 0.975), strict=True):
            expected = signal.ravel()[order][np.searchsorted(reached, quantile)]
            assert value == pytest.approx(expected, abs=2e-3)
    below = (weights * special.betainc(a, b, 0.25)).sum()
    assert sum(band.share for band in fit.bands()[:2]) == pytest.approx(below, abs=1e-4)


def test_one_candidates_share_is_the_integral_over_its_distribution() -> None:
    fit = fit_tasks([task(2, 1)] * 50)
    expected = sum(
        each.weight
        * integrate.quad(
            lambda p, each=each: (1 - p**10 - (1 - p) ** 10) * stats.beta.pdf(p, each.a, each.b),
            0,
            1,
            limit=200,
        )[0]
        for each in sorted(fit.candidates, key=lambda each: -each.weight)[:20]
    )
    covered = sum(sorted((each.weight for each in fit.candidates), reverse=True)[:20])
    assert fit.signal(10)[0] == pytest.approx(expected / covered, abs=0.02)
