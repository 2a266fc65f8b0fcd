"""Coverage of the 95 % intervals of pass@k, simulated.

    .venv/bin/python benchmarks/statistics/coverage.py [--draws N]

Draws evaluations whose tasks have pass probabilities of a beta distribution, computes the interval
by the code that the service uses, and counts how often it contains the true pass@k: the mean of
1 - (1 - p)^k over the distribution that the tasks come from. Spread is the sum of its parameters:
infinite where all tasks are alike, 0.5 where most always pass or never do.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from hillclimb.stats.pass_rate import interval, pass_at_k

RESULT = Path(__file__).resolve().parents[1] / "results" / "interval_coverage.json"
SIZES = (30, 60, 300)
RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
SPREADS = (math.inf, 4.0, 0.5)
SAMPLES = ((1, 1), (4, 1), (8, 1), (4, 3), (8, 3), (8, 8))
"""Rollouts per task, and k."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of evaluations whose interval contains the truth."""

    num_tasks: int
    rate: float
    """Mean pass probability of a task."""
    spread: float | None
    num_samples: int
    k: int
    truth: float
    covered: float


def true_pass_at_k(rate: float, spread: float, k: int) -> float:
    """Return the mean of 1 - (1 - p)^k over the distribution of tasks."""
    if math.isinf(spread):
        return 1.0 - (1.0 - rate) ** k
    a, b = rate * spread, (1.0 - rate) * spread
    return 1.0 - math.prod((b + i) / (a + b + i) for i in range(k))


def measure(
    num_tasks: int, rate: float, spread: float, samples: tuple[int, int], num_draws: int
) -> Coverage:
    """Simulate one cell of the table."""
    num_samples, k = samples
    rng = np.random.default_rng([num_tasks, round(1000 * rate), num_samples, k])
    truth = true_pass_at_k(rate, spread, k)
    values = [pass_at_k(num_samples, passed, k) for passed in range(num_samples + 1)]
    size = (num_draws, num_tasks)
    p = (
        np.full(size, rate)
        if math.isinf(spread)
        else rng.beta(rate * spread, (1 - rate) * spread, size)
    )
    passed = rng.binomial(num_samples, p)
    hits = 0
    for draw in passed:
        low, high = interval([values[n] for n in draw], max_trials=num_tasks * num_samples // k)
        hits += low <= truth <= high
    return Coverage(
        num_tasks=num_tasks, rate=rate, spread=None if math.isinf(spread) else spread,
        num_samples=num_samples, k=k, truth=truth, covered=hits / num_draws,
    )  # fmt: skip


def main() -> None:
    """Print the cells below 93 % and above 97 %, and write all to the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    cells = [
        measure(n, rate, spread, samples, draws)
        for n, rate, spread, samples in product(SIZES, RATES, SPREADS, SAMPLES)
        if not (samples[0] == 1 and spread != math.inf)
    ]
    for cell in cells:
        if cell.covered < 0.93 or (cell.covered > 0.97 and 0.2 <= cell.truth <= 0.8):
            print(cell)
    middle = [cell.covered for cell in cells if 0.2 <= cell.truth <= 0.8]
    print(f"{len(cells)} cells, least {min(c.covered for c in cells):.3f}; for 0.2 to 0.8:"
          f" {min(middle):.3f} to {max(middle):.3f}")  # fmt: skip
    lines = ",\n".join(json.dumps(asdict(cell)) for cell in cells)
    RESULT.write_text(f'{{"num_draws": {draws}, "cells": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
