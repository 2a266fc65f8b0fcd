"""Exact coverage of 95 % intervals where a trial is a task, ours beside the usual ones.

    PYTHONPATH=. /tmp/reference/bin/python benchmarks/statistics/whole_trials.py

In the environment of `reference.py`. With one rollout per task, or k rollouts per task for pass@k,
the passing tasks are binomial, and the coverage of any interval is a sum. `coverage.py` finds two
such kinds of evaluation, of 30 tasks, just below 93 %: their exact coverage tells whether that is
chance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hillclimb.stats.intervals import CONFIDENCE_Z, interval

RESULTS = Path(__file__).resolve().parents[1] / "results"
RESULT = RESULTS / "whole_trials.json"
SIZES = range(30, 61)
TRUTHS = np.linspace(0.2, 0.8, 2401)
BAND = (0.93, 0.97)

Array = np.ndarray[Any, np.dtype[Any]]
Ends = tuple[Array, Array]


def ours(n: int) -> Ends:
    """Return the limits of the service's interval for 0 to n passes of n trials."""
    ends = [interval([1.0] * x + [0.0] * (n - x), max_trials=float(n)) for x in range(n + 1)]
    return np.array([low for low, _ in ends]), np.array([high for _, high in ends])


def beta_limits(n: int, shift: float) -> Ends:
    """Return quantiles of beta distributions: Clopper and Pearson's at 0, Jeffreys' at 1/2."""
    x = np.arange(n + 1)
    low = stats.beta.ppf(0.025, np.maximum(x + shift, 1e-9), n - x + 1 - shift)
    high = stats.beta.ppf(0.975, x + 1 - shift, np.maximum(n - x + shift, 1e-9))
    return np.where(x == 0, 0.0, low), np.where(x == n, 1.0, high)


def agresti_coull(n: int) -> Ends:
    """Return Agresti and Coull's limits (1998)."""
    z2 = CONFIDENCE_Z**2
    p = (np.arange(n + 1) + z2 / 2.0) / (n + z2)
    half = CONFIDENCE_Z * np.sqrt(p * (1.0 - p) / (n + z2))
    return p - half, p + half


def wider(n: int) -> Ends:
    """Return Wilson's limits at a larger quantile for few trials, 1 + 0.6 / n times."""
    z = CONFIDENCE_Z * (1.0 + 0.6 / n)
    share = np.arange(n + 1) / n
    centre = (share + z * z / 2.0 / n) / (1.0 + z * z / n)
    half = z * np.sqrt(share * (1.0 - share) / n + z * z / 4.0 / n**2) / (1.0 + z * z / n)
    return centre - half, centre + half


METHODS: dict[str, Callable[[int], Ends]] = {
    "ours": ours,
    "Wilson, wider": wider,
    "Agresti and Coull": agresti_coull,
    "Jeffreys": lambda n: beta_limits(n, 0.5),
    "beta, 0.35": lambda n: beta_limits(n, 0.35),
    "Clopper and Pearson": lambda n: beta_limits(n, 0.0),
}


def coverage(n: int, ends: Ends, truths: Array) -> Array:
    """Return the chance that the interval contains each truth."""
    low, high = ends
    contains = (low[:, None] - 1e-12 <= truths) & (truths <= high[:, None] + 1e-12)
    chances = stats.binom.pmf(np.arange(n + 1)[:, None], n, truths[None, :])
    return np.asarray((chances * contains).sum(0))


def low_cells() -> list[dict[str, float]]:
    """Return the kinds of evaluation below 93 % that have a trial per task, measured and exact."""
    facts = json.loads((RESULTS / "interval_coverage.json").read_text())
    cells = [dict(zip(facts["columns"], cell, strict=True)) for cell in facts["cells"]]
    return [
        {
            "num_tasks": cell["num_tasks"],
            "truth": cell["truth"],
            "measured": cell["covered"],
            "standard_error": round(
                math.sqrt(cell["covered"] * (1.0 - cell["covered"]) / cell["num_draws"]), 5
            ),
            "exact": round(
                float(coverage(cell["num_tasks"], ours(cell["num_tasks"]),
                               np.array([cell["truth"]]))[0]), 5
            ),
        }
        for cell in cells
        if cell["covered"] < BAND[0] and cell["num_samples"] == cell["k"]
    ]  # fmt: skip


def main() -> None:
    """Print and write the least and the largest coverage of every method."""
    methods = {}
    for name, limits in METHODS.items():
        values = {n: coverage(n, limits(n), TRUTHS) for n in SIZES}
        outside = [n for n, v in values.items() if v.min() < BAND[0] or v.max() > BAND[1]]
        methods[name] = {
            "least": round(min(float(v.min()) for v in values.values()), 5),
            "most": round(max(float(v.max()) for v in values.values()), 5),
            "sizes_outside": outside,
        }
        print(f"{name:20} {methods[name]}")
    facts = {"low_cells": low_cells(), "methods": methods}
    print(facts["low_cells"])
    RESULT.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
