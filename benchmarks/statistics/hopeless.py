"""False stops of the guard `hopeless`, simulated.

    .venv/bin/python benchmarks/statistics/hopeless.py [--runs N]

A run of 100 steps is evaluated before it and after every tenth step, with the pass probabilities of
the demo's tasks (`demo_tasks.py`). Its policy wanders, as in `verdicts.py`, and its mean pass rate
rises by a gain: evenly, first fast and then slowly, or only from some step on. The guard looks
after every evaluation with the defaults of the spec. A false stop is a trip in a run whose last
evaluation rule v2 calls IMPROVED over the first. Writes `benchmarks/results/hopeless.json`.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hillclimb.spec.monitoring.guards import HopelessGuard
from hillclimb.stats.verdicts.compare import LEVEL
from hillclimb.stats.verdicts.rule_v2 import RuleV2
from hillclimb.stats.verdicts.stopping.hopeless import improvement_chance
from hillclimb.stats.verdicts.verdict import PairedSample, Selection, Verdict

RESULTS = Path(__file__).resolve().parents[1] / "results"
STEPS, INTERVAL = 100, 10
WANDER, MEMORY = 0.5, 0.8
"""Standard deviation of a task's log odds around their mean, and correlation between neighbours."""
GUARD = HopelessGuard()
ONE_SIDED_LEVEL = RuleV2().one_sided_level(Selection(), level=LEVEL, num_samples=1)

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Learning:
    """The mean pass rate of a run: it rises by `gain` from the share `start` of the steps on."""

    gain: float
    shape: str
    """`even`, or `early`: three quarters of the gain in the first third."""
    start: float = 0.0

    def at(self, step: int) -> float:
        """Return the rise of the mean pass rate after a step."""
        done = max(0.0, step / STEPS - self.start) / (1.0 - self.start)
        if self.shape == "early":
            done = (1.0 - math.exp(-4.0 * done)) / (1.0 - math.exp(-4.0))
        return self.gain * done


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Shares over the runs of one kind."""

    learning: Learning
    num_tasks: int
    num_runs: int
    improved: float
    """Runs whose last evaluation is IMPROVED, if nothing stops them."""
    tripped: float
    false_stops: float
    """Runs that are both, as a share of all runs."""
    steps_saved: float
    """Steps after the trip, as a share of the steps of all runs."""


def simulate(probabilities: Array, learning: Learning, num_runs: int, seed: int) -> Result:
    """Simulate runs over tasks with these pass probabilities, [tasks]."""
    rng = np.random.default_rng(seed)
    improved, tripped, both, saved = 0, 0, 0, 0
    for _ in range(num_runs):
        passed = _evaluations(probabilities, learning, rng)
        is_improved = improves(
            int((passed[-1] & ~passed[0]).sum()), int((passed[0] & ~passed[-1]).sum())
        )
        step = trip(passed)
        improved += is_improved
        tripped += step is not None
        both += is_improved and step is not None
        saved += 0 if step is None else STEPS - step
    return Result(
        learning=learning,
        num_tasks=len(probabilities),
        num_runs=num_runs,
        improved=improved / num_runs,
        tripped=tripped / num_runs,
        false_stops=both / num_runs,
        steps_saved=saved / num_runs / STEPS,
    )


def _evaluations(probabilities: Array, learning: Learning, rng: np.random.Generator) -> Array:
    """Return the passes of each evaluation, [evaluations, tasks]."""
    logits = np.log(probabilities / (1.0 - probabilities))
    walk = rng.normal(size=len(logits))
    rows = []
    for step in range(0, STEPS + 1, INTERVAL):
        moved = logits + WANDER * walk
        goal = probabilities.mean() + learning.at(step)
        rows.append(rng.random(len(logits)) < _with_mean(moved, goal))
        walk = MEMORY * walk + math.sqrt(1.0 - MEMORY**2) * rng.normal(size=len(logits))
    return np.array(rows)


def _with_mean(logits: Array, goal: float) -> Array:
    """Return probabilities of these log odds, shifted together to a mean."""
    low, high = -10.0, 10.0
    for _ in range(30):
        middle = (low + high) / 2.0
        if (1.0 / (1.0 + np.exp(-(logits + middle)))).mean() < goal:
            low = middle
        else:
            high = middle
    shifted: Array = 1.0 / (1.0 + np.exp(-(logits + low)))
    return shifted


def trip(passed: Array) -> int | None:
    """Return the step after which the guard trips, before the last one."""
    keys = [("", str(task)) for task in range(passed.shape[1])]
    rows = [dict(zip(keys, row.astype(float).tolist(), strict=True)) for row in passed]
    for number in range(GUARD.min_evaluations, len(rows) - 1):
        step = number * INTERVAL
        if step < GUARD.min_share_done * STEPS:
            continue
        evaluations = [(i * INTERVAL, rows[i]) for i in range(number + 1)]
        chance = improvement_chance(evaluations, last_step=STEPS, one_sided_level=ONE_SIDED_LEVEL)
        if chance is not None and chance.value < GUARD.max_chance:
            return step
    return None


@cache
def improves(gained: int, lost: int) -> bool:
    """Tell whether rule v2 calls the last evaluation IMPROVED."""
    sample = PairedSample(
        before=0.5, after=0.5, differences=(Fraction(1),) * gained + (Fraction(-1),) * lost
    )
    if gained + lost < 10:
        sample = PairedSample(
            before=0.5, after=0.5, differences=(*sample.differences, *([Fraction(0)] * 10))
        )
    judged = RuleV2().judge({"all": sample}, Selection(), level=LEVEL)["all"]
    return judged.verdict is Verdict.IMPROVED


def kinds() -> list[Learning]:
    """Return the kinds of learning."""
    found = [Learning(gain=0.0, shape="even")]
    for gain in (0.05, 0.1, 0.15, 0.2, 0.3):
        found += [Learning(gain=gain, shape="even"), Learning(gain=gain, shape="early")]
        found += [Learning(gain=gain, shape="even", start=start) for start in (0.4, 0.6, 0.8)]
    return found


def main() -> None:
    """Simulate every kind, and write the shares."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--runs", type=int, default=1000, help="runs of each kind")
    num_runs = parser.parse_args().runs
    tasks = json.loads((RESULTS / "demo_tasks.json").read_text())["tasks"]
    rates = np.array([(t["num_passed"] + 0.5) / (t["num_graded"] + 1.0) for t in tasks])
    results = []
    for size in (len(rates), 100):
        some = rates[np.linspace(0, len(rates) - 1, size).round().astype(int)]
        for seed, learning in enumerate(kinds()):
            result = simulate(some, learning, num_runs, seed)
            results.append(asdict(result))
            print(json.dumps(results[-1]), flush=True)
    facts = {"guard": GUARD.model_dump(), "steps": STEPS, "interval": INTERVAL, "results": results}
    (RESULTS / "hopeless.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
