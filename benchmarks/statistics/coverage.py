"""Coverage of the 95 % intervals of pass@k, simulated.

    .venv/bin/python benchmarks/statistics/coverage.py [--draws N]

Draws evaluations whose tasks have pass probabilities of five kinds, computes the interval by the
code that the service uses, and counts how often it contains the true pass@k: the mean of
1 - (1 - p)^k over the distribution that the tasks come from. Every kind of evaluation is drawn N
times; those that then look too low, or too high in the middle, are measured again by 10 N fresh
draws, so that the extremes of so many kinds are not those of chance.

`width` is the mean length over that of Wilson's interval at the truth with the trials that the true
variance of the tasks' values is worth; where both ends are near 0 or 1 it says little.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

import numpy as np

from hillclimb.stats.intervals import independent_trials, interval, wilson
from hillclimb.stats.pass_rate import pass_at_k

RESULT = Path(__file__).resolve().parents[1] / "results" / "interval_coverage.json"
SIZES = (10, 30, 60, 200)
RATES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)
SAMPLES = ((1, 1), (3, 1), (8, 1), (16, 1), (3, 3), (8, 3), (16, 3), (8, 8), (16, 8))
"""Rollouts per task, and k."""
SPREADS = {"beta 4": 4.0, "beta 0.5": 0.5}
"""Sums of the parameters of the beta distributions: at 0.5 most tasks always pass or never do."""
SHARES = {"two points": 0.2, "never or always": 0.0}
"""Distance of the two pass probabilities from 0 and 1, as a share of the rate's."""
KINDS = ("alike", *SPREADS, *SHARES)
AGAIN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Share of evaluations whose interval contains the truth."""

    num_tasks: int
    rate: float
    """Mean pass probability of a task."""
    kind: str
    num_samples: int
    k: int
    truth: float
    num_draws: int
    covered: float
    width: float

    @property
    def is_middle(self) -> bool:
        """Tell whether 93 to 97 % are asked for; elsewhere 93 % at least."""
        return self.num_tasks >= 30 and 0.2 <= self.truth <= 0.8


def draw_rates(
    kind: str, rate: float, rng: np.random.Generator, size: tuple[int, int]
) -> tuple[np.ndarray, Callable[[int], float]]:
    """Draw pass probabilities of tasks; return them with the true pass@k as a function of k."""
    if kind == "alike":
        return np.full(size, rate), lambda k: 1.0 - (1.0 - rate) ** k
    if kind in SPREADS:
        a, b = rate * SPREADS[kind], (1.0 - rate) * SPREADS[kind]
        return rng.beta(
            a, b, size
        ), lambda k: 1.0 - math.prod((b + i) / (a + b + i) for i in range(k))
    low, high = rate * SHARES[kind], 1.0 - (1.0 - rate) * SHARES[kind]
    share = (rate - low) / (high - low)
    return np.where(
        rng.random(size) < share, high, low
    ), lambda k: 1.0 - share * (1.0 - high) ** k - (1.0 - share) * (1.0 - low) ** k


def measure(cell: tuple[int, float, str, tuple[int, int]], num_draws: int) -> Coverage:
    """Simulate one kind of evaluation."""
    num_tasks, rate, kind, (num_samples, k) = cell
    seed = [num_draws, num_tasks, round(1000 * rate), KINDS.index(kind), num_samples, k]
    rng = np.random.default_rng(seed)
    p, true_pass_at_k = draw_rates(kind, rate, rng, (num_draws, num_tasks))
    truth = true_pass_at_k(k)
    values = np.array([pass_at_k(num_samples, passed, k) for passed in range(num_samples + 1)])
    drawn = values[np.sort(rng.binomial(num_samples, p), axis=1)]
    known: dict[bytes, tuple[float, float]] = {}
    hits, length = 0, 0.0
    for draw in drawn:
        key = draw.tobytes()
        if key not in known:
            most = independent_trials([num_samples] * num_tasks, float(draw.mean()), k)
            known[key] = interval(draw.tolist(), max_trials=most)
        low, high = known[key]
        hits += low - 1e-12 <= truth <= high + 1e-12
        length += high - low
    variance = float(drawn.var()) or truth * (1.0 - truth)
    best = wilson(truth, truth * (1.0 - truth) * num_tasks / variance)
    return Coverage(
        num_tasks=num_tasks, rate=rate, kind=kind, num_samples=num_samples, k=k,
        truth=round(truth, 6), num_draws=num_draws, covered=round(hits / num_draws, 5),
        width=round(length / num_draws / (best[1] - best[0]), 3),
    )  # fmt: skip


def measure_well(cell: tuple[int, float, str, tuple[int, int]], num_draws: int) -> Coverage:
    """Simulate one kind of evaluation, and again where its coverage needs a closer look."""
    first = measure(cell, num_draws)
    if first.covered >= 0.943 and not (first.is_middle and first.covered > 0.961):
        return first
    return measure(cell, AGAIN * num_draws)


def wilson_exactly(num_tasks: int) -> tuple[float, float]:
    """Return the least and the largest coverage for one rollout per task and truths 0.2 to 0.8."""
    ends = [wilson(passed / num_tasks, num_tasks) for passed in range(num_tasks + 1)]
    covered = [
        math.fsum(
            math.comb(num_tasks, passed) * p**passed * (1.0 - p) ** (num_tasks - passed)
            for passed, (low, high) in enumerate(ends)
            if low <= p <= high
        )
        for p in (0.2 + 0.0005 * step for step in range(1201))
    ]
    return round(min(covered), 5), round(max(covered), 5)


def main() -> None:
    """Print a table, the kinds outside the limits, and write all to the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    kinds = [
        (n, rate, kind, samples)
        for n, rate, kind, samples in product(SIZES, RATES, KINDS, SAMPLES)
        if not (samples[0] == 1 and kind != "alike")
        if not (samples[1] > 1 and kind == "never or always")
    ]
    with ProcessPoolExecutor(2) as pool:
        cells = list(pool.map(partial(measure_well, num_draws=draws), kinds, chunksize=8))
    for middle, k, size in product((True, False), (1, 3, 8), SIZES):
        part = [
            c for c in cells if c.is_middle is middle and c.k == k and c.num_tasks == size
        ]  # fmt: skip
        if part:
            covered = [c.covered for c in part]
            widths = [c.width for c in part if 1.0 <= size * c.truth <= size - 1.0]
            print(f"{'middle' if middle else 'rest':6} k={k} n={size:3} {len(part):4} kinds:"
                  f" {100 * min(covered):.1f} to {100 * max(covered):.1f} %, width"
                  f" {median(widths):.2f}, at most {max(widths):.2f}")  # fmt: skip
    for cell in cells:
        if cell.covered < 0.93 or (cell.covered > 0.97 and cell.is_middle):
            print(cell)
    columns = [each.name for each in fields(Coverage)]
    rows = ",\n".join(json.dumps([getattr(cell, name) for name in columns]) for cell in cells)
    exact = json.dumps({size: wilson_exactly(size) for size in (30, 31, 60, 200)})
    RESULT.write_text(
        f'{{"num_draws": {draws}, "wilson": {exact}, "columns": {json.dumps(columns)},'
        f' "cells": [\n{rows}\n]}}\n'
    )


if __name__ == "__main__":
    main()
