"""Reference values of the statistics from scipy and statsmodels, which the service does not need.

    python -m venv /tmp/reference && /tmp/reference/bin/pip install scipy statsmodels
    /tmp/reference/bin/python benchmarks/statistics/reference.py

Writes arguments and values; `tests/hillclimb/stats/test_reference.py` compares them with
`hillclimb.stats`, of which nothing is imported here.
"""

from __future__ import annotations

import json
import random
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import statsmodels.api as sm
from scipy import stats
from scipy.optimize import brentq
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint, samplesize_proportions_2indep_onetail

RESULT = Path(__file__).resolve().parents[1] / "results" / "statistics_reference.json"
DRAW = random.Random(0)
Cases = list[list[Any]]
"""Arguments and value of each case."""

SHARES = [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (14, 30), (21, 30), (1, 28), (299, 300)]
"""Passes and trials."""


def intervals() -> dict[str, Cases]:
    """Wilson's interval, and the lower limit of Clopper and Pearson's, of parts of trials too."""
    parts = [(10 * DRAW.random() ** 2, 10 ** (3 * DRAW.random())) for _ in range(60)]
    whole = [
        [[x, n - x], float(proportion_confint(x, n, method="beta")[0])] for x, n in SHARES if x
    ]
    return {
        "wilson": [
            [[x / n, n], [float(end) for end in proportion_confint(x, n, method="wilson")]]
            for x, n in SHARES
        ],
        "exact_low": whole
        + [[[x, y], float(stats.beta.ppf(0.025, x, y + 1))] for x, y in parts if x > 0.01],
    }


def shares_of_tasks() -> dict[str, Cases]:
    """pass@k, groups with signal, and the trials that pass@k of tasks that are alike is worth."""
    pass_at_k: Cases = []
    signal: Cases = []
    trials: Cases = []
    for _ in range(60):
        n = DRAW.randint(2, 40)
        c, k = DRAW.randint(0, n), DRAW.randint(1, n)
        drawn = stats.hypergeom(n, c, k)
        pass_at_k.append([[n, c, k], float(drawn.sf(0))])
        signal.append([[n, c, k], float(1.0 - drawn.pmf(0) - drawn.pmf(k))])
        p, tasks = DRAW.uniform(0.05, 0.95), DRAW.randint(1, 50)
        rate = 1.0 - (1.0 - p) ** k
        passed = np.arange(n + 1)
        values = stats.hypergeom.sf(0, n, passed, k)
        variance = np.sum(stats.binom.pmf(passed, n, p) * (values - rate) ** 2)
        if 0.001 < rate < 0.999:
            expected = rate * (1.0 - rate) * tasks / variance
            trials.append([[n, tasks, rate, k], float(expected)])
    signal = [each for each in signal if each[0][2] >= 2]
    return {"pass_at_k": pass_at_k, "signal_of_task": signal, "independent_trials": trials}


def tests() -> dict[str, Cases]:
    """McNemar's exact test, the sign-flip test in eighths, and Holm's correction."""
    pairs = [(7, 0), (9, 2), (0, 0), (3, 3), (0, 1), (40, 17), (300, 240), (12, 30)]
    flips: Cases = []
    for _ in range(6):
        steps = [DRAW.randint(-6, 8) for _ in range(12)]
        differences = np.array(steps) / 8.0
        result = stats.permutation_test(
            (differences, np.zeros(len(steps))),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples", vectorized=True, n_resamples=np.inf,
        )  # fmt: skip
        flips.append([[steps], float(result.pvalue)])
    families = [[DRAW.random() ** 3 for _ in range(size)] for size in (1, 2, 8, 14)]
    families.append([0.01, 0.04, 0.04, 0.03, 0.9])
    return {
        "mcnemar_exact": [
            [[b, c], float(mcnemar([[0, b], [c, 0]], exact=True).pvalue)] for b, c in pairs
        ],
        "sign_flip_p_value_of_eighths": flips,
        "holm": [
            [[family], [float(p) for p in multipletests(family, method="holm")[1]]]
            for family in families
        ],
    }


def sizes() -> dict[str, Cases]:
    """Numbers of tasks that show a change with power 0.8."""
    rates = [(0.4, 0.55), (0.467, 0.7), (0.05, 0.1), (0.9, 0.8)]
    paired: Cases = []
    for gain, lost, level in [(0.1, 0.1, 0.025), (0.2, 0.0, 0.025), (0.05, 0.2, 0.005)]:
        changed = gain + 2.0 * lost
        spread = stats.norm.isf(level) * np.sqrt(changed)
        spread += stats.norm.ppf(0.8) * np.sqrt(changed - gain**2)
        paired.append([[gain, lost, level], float((spread / gain) ** 2)])
    return {
        "unpaired_size": [
            [[p1, p2], float(samplesize_proportions_2indep_onetail(p2 - p1, p1, 0.8, alpha=0.05))]
            for p1, p2 in rates
        ],
        "paired_size": paired,
    }


def estimates() -> dict[str, Cases]:
    """Weighted trend with its interval, variance per prompt, and the mixture of bets."""
    trends: Cases = []
    for num_steps in (5, 9, 40):
        steps = [[step, DRAW.randint(10, 60)] for step in range(1, num_steps + 1)]
        points = [[step, n, float(round(n * DRAW.uniform(0.2, 0.7)))] for step, n in steps]
        x, weight, total = (np.array(column, dtype=float) for column in zip(*points, strict=True))
        fit = sm.WLS(total / weight, sm.add_constant(x), weights=weight).fit()
        half = stats.norm.ppf(0.975) * fit.bse[1]
        slope = float(fit.params[1])
        trends.append([[points], [slope, float(slope - half), float(slope + half)]])
    groups = [[DRAW.choice([0.0, 0.25, 1.0]) for _ in range(DRAW.randint(1, 8))] for _ in range(20)]
    spreads = [np.var(group) for group in groups if len(group) > 1]
    stakes = (np.arange(200) + 0.5) / 200
    weights = stats.beta.pdf(stakes, 2, 2) / stats.beta.pdf(stakes, 2, 2).sum()
    bets: Cases = []
    for size in (1, 10, 60):
        steps = [DRAW.randint(-3, 4) for _ in range(size)]
        capital = np.prod(1.0 + np.outer(stakes, np.array(steps) / 4.0), axis=1)
        bets.append([[steps], float(np.log(np.sum(weights * capital)))])
    return {
        "trend": trends,
        "variance_per_prompt": [[[groups], float(np.mean(spreads))]],
        "log_e_value_of_quarters": bets,
    }


def tests_of_issues() -> dict[str, Cases]:
    """Fisher's exact test, and the sign-flip test of thousands of tasks by its normal limit."""
    tables = [((3, 1), (4, 4)), ((16, 6), (20, 30)), ((0, 0), (5, 9)), ((0, 8), (40, 41)),
              ((150, 120), (300, 290)), ((10, 10), (10, 12))]  # fmt: skip
    flips = [(3000, 2800), (2900, 3100), (4000, 3600)]
    return {
        "fisher_exact": [
            [
                [[a, b], [m, n]],
                float(stats.fisher_exact([[a, m - a], [b, n - b]], alternative="two-sided").pvalue),
            ]
            for (a, b), (m, n) in tables
        ],
        "sign_flip_p_value_of_many": [
            [[up, down], float(2.0 * stats.norm.sf(abs(up - down) / np.sqrt(up + down)))]
            for up, down in flips
        ],
    }


def changes_that_can_be_seen() -> dict[str, Cases]:
    """Smallest changes with power 0.8, and the chance that an evaluation still decides."""

    def paired(gain: float, lost: float, level: float) -> float:
        changed = gain + 2.0 * lost
        spread = stats.norm.isf(level) * np.sqrt(changed)
        return float(((spread + stats.norm.ppf(0.8) * np.sqrt(changed - gain**2)) / gain) ** 2)

    def unpaired(gain: float, before: float) -> float:
        mean = before + gain / 2.0
        spread = stats.norm.isf(0.025) * np.sqrt(2.0 * mean * (1.0 - mean))
        after = before + gain
        variance = before * (1.0 - before) + after * (1.0 - after)
        return float(((spread + stats.norm.ppf(0.8) * np.sqrt(variance)) / gain) ** 2)

    seen_paired: Cases = []
    for tasks, lost, level in [(300, 0.1, 0.025), (60, 0.05, 0.025), (400, 0.2, 0.00125)]:
        smallest = brentq(
            lambda gain, n=tasks, x=lost, a=level: paired(gain, x, a) - n,
            1e-4, 1.0 - 2.0 * lost, xtol=1e-15, rtol=1e-14,
        )  # fmt: skip
        seen_paired.append([[tasks, lost, level], float(smallest)])
    seen_unpaired: Cases = []
    for tasks, before in [(300, 0.45), (60, 0.1), (1000, 0.5)]:
        smallest = brentq(
            lambda gain, n=tasks, p=before: unpaired(gain, p) - n,
            1e-4, 1.0 - before, xtol=1e-15, rtol=1e-14,
        )  # fmt: skip
        seen_unpaired.append([[tasks, before], float(smallest)])
    chances: Cases = []
    for planned, level, steps in [
        (300, 0.0125, [1] * 12 + [-1] * 10 + [0] * 38), (100, 0.00125, [1, 0, -1] * 20),
        (200, 0.0125, [1] * 15 + [-1] * 2 + [0] * 40),
    ]:  # fmt: skip
        x = np.array([*steps, 1.0, -1.0])
        left, mean, deviation = planned + 2 - len(x), x.mean(), x.std()
        margin = stats.norm.ppf(0.975) * deviation / np.sqrt(len(x))
        needed = stats.norm.isf(level) * np.sqrt(np.mean(x**2) * (planned + 2))
        best = max(x.sum() + left * (mean + margin), -x.sum() + left * (margin - mean))
        spread = deviation * np.sqrt(left)
        chances.append([[planned, level, steps], float(stats.norm.sf((needed - best) / spread))])
    return {
        "detectable_paired": seen_paired,
        "detectable_unpaired": seen_unpaired,
        "decision_chance": chances,
    }


def main() -> None:
    """Write the values of all functions."""
    made = intervals() | shares_of_tasks() | tests() | sizes() | estimates()
    made |= tests_of_issues() | changes_that_can_be_seen()
    names = ",\n".join(
        f'"{name}": [\n' + ",\n".join(map(json.dumps, cases)) + "\n]"
        for name, cases in made.items()
    )
    versions = json.dumps({name: version(name) for name in ("numpy", "scipy", "statsmodels")})
    RESULT.write_text(f'{{"versions": {versions},\n{names}}}\n')


if __name__ == "__main__":
    main()
