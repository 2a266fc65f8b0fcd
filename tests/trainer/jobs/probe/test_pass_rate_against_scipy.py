"""The contract's numbers against an independent implementation."""

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from hillclimb.stats.intervals import wilson
from hillclimb.stats.paired import mcnemar_exact, sign_flip_p_value
from hillclimb.stats.pass_rate import pass_at_k, variance_per_prompt


@pytest.mark.parametrize(("passed", "trials"), [(0, 5), (5, 5), (14, 30), (299, 300), (1, 1)])
def test_wilson_equals_scipys(passed: int, trials: int) -> None:
    expected = stats.binomtest(passed, trials).proportion_ci(method="wilson")
    assert wilson(passed / trials, trials) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_pass_at_k_equals_the_hypergeometric_distribution() -> None:
    draw = random.Random(0)
    for _ in range(200):
        n = draw.randint(1, 40)
        c, k = draw.randint(0, n), draw.randint(1, n)
        expected = 1.0 - stats.hypergeom(n, c, k).pmf(0)
        assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-9)


def test_mcnemar_equals_the_exact_binomial_test() -> None:
    for gained in range(12):
        for lost in range(12):
            if gained + lost:
                expected = stats.binomtest(gained, gained + lost, 0.5).pvalue
                assert mcnemar_exact(gained, lost) == pytest.approx(expected, abs=1e-12)


def test_the_sign_flip_test_equals_scipys_permutation_test() -> None:
    draw = random.Random(1)
    for _ in range(5):
        differences = [Fraction(draw.randint(-4, 5), 4) for _ in range(11)]
        expected = stats.permutation_test(
            (np.array([float(d) for d in differences]), np.zeros(len(differences))),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        ).pvalue
        assert sign_flip_p_value(differences) == pytest.approx(expected, abs=1e-12)


def test_variance_per_prompt_equals_numpys_population_variance() -> None:
    draw = random.Random(2)
    groups = [[float(draw.randint(0, 1)) for _ in range(8)] for _ in range(20)]
    assert variance_per_prompt(groups) == pytest.approx(np.mean([np.var(g) for g in groups]))
