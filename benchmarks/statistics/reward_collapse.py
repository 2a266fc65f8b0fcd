"""False alarms and delay of the guard `reward_collapse`, simulated.

    .venv/bin/python benchmarks/statistics/reward_collapse.py [--runs N]

The mean reward of a step is normal around a level with a standard deviation of 0.05, about that of
the demo's steps, and depends on the step before with a correlation. Null runs keep their level, or
rise by 0.3 over the run; collapsing runs fall by a drop from one step to the next. The guard looks
after every step with the defaults of the spec. Writes `benchmarks/results/reward_collapse.json`.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hillclimb.spec.monitoring.guards import RewardCollapseGuard
from hillclimb.stats.verdicts.stopping.reward_drop import reward_drop

RESULT = Path(__file__).resolve().parents[1] / "results" / "reward_collapse.json"
GUARD = RewardCollapseGuard()
SPREAD, LEVEL = 0.05, 0.5
FALLS_AFTER = 60

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Trips in simulated runs of one kind."""

    steps: int
    correlation: float
    """Of the rewards of neighbouring steps."""
    rise: float
    """Over the whole run."""
    drop: float
    """After `FALLS_AFTER` steps; 0: a null run."""
    num_runs: int
    any_size: float
    """Runs whose test alone is significant at some step, whatever the size of the fall."""
    tripped: float
    median_delay: float | None
    """Steps from the fall to the trip, in the median of the runs that tripped."""


def simulate(
    *, steps: int, correlation: float, rise: float, drop: float, num_runs: int, seed: int
) -> Result:
    """Simulate runs of one kind."""
    rng = np.random.default_rng(seed)
    significant, delays = 0, []
    for _ in range(num_runs):
        rewards = _rewards(rng, steps, correlation, rise, drop).tolist()
        is_significant, step = _trip(rewards)
        significant += is_significant
        if step is not None:
            delays.append(step - FALLS_AFTER)
    return Result(
        steps=steps,
        correlation=correlation,
        rise=rise,
        drop=drop,
        num_runs=num_runs,
        any_size=significant / num_runs,
        tripped=len(delays) / num_runs,
        median_delay=float(np.median(delays)) if drop and delays else None,
    )


def _rewards(
    rng: np.random.Generator, steps: int, correlation: float, rise: float, drop: float
) -> Array:
    noise = rng.normal(size=steps)
    for step in range(1, steps):
        noise[step] = correlation * noise[step - 1] + (1.0 - correlation**2) ** 0.5 * noise[step]
    level = LEVEL + rise * np.arange(steps) / steps
    level[FALLS_AFTER:] -= drop
    rewards: Array = level + SPREAD * noise
    return rewards


def _trip(rewards: list[float]) -> tuple[bool, int | None]:
    """Tell whether the test was significant at any step, and after which step the guard trips."""
    is_significant = False
    for step in range(2 * GUARD.window_steps, len(rewards) + 1):
        drop = reward_drop(rewards[:step], window=GUARD.window_steps, num_looks=len(rewards))
        if drop is not None and drop.p_value <= GUARD.max_p:
            is_significant = True
            if drop.size >= GUARD.min_drop:
                return True, step
    return is_significant, None


def main() -> None:
    """Simulate null runs and collapsing ones, and write the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=1000, help="runs of each kind")
    num_runs = parser.parse_args().runs
    kinds = [(c, rise, 0.0) for rise in (0.0, 0.3) for c in (0.0, 0.3, 0.6)]
    kinds += [(c, 0.0, drop) for c in (0.0, 0.3) for drop in (0.1, 0.15, 0.2, 0.3)]
    results = []
    for seed, (correlation, rise, drop) in enumerate(kinds):
        result = simulate(
            steps=100,
            correlation=correlation,
            rise=rise,
            drop=drop,
            num_runs=num_runs,
            seed=seed,
        )
        results.append(asdict(result))
        print(json.dumps(results[-1]), flush=True)
    facts = {"guard": GUARD.model_dump(), "spread": SPREAD, "results": results}
    RESULT.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
