"""Errors and power of the verdicts' rules, simulated.

    .venv/bin/python benchmarks/statistics/verdicts.py [--runs N] [--outcomes FILE]

Null runs: nothing is learned. Every evaluation draws each task's outcome anew with the task's own
pass probability; a policy that wanders moves the probabilities of single tasks from checkpoint to
checkpoint, correlated between neighbours, with hardly any change of the mean. A researcher looks
after every tenth of an evaluation, and either takes the checkpoint with the best rate in the end or
any that is called IMPROVED at a look. Rule v1 is applied as it was used, without a correction.

Power: 300 tasks of which 30 % change, at several gains; the share of tasks until rule v2 decides,
with a look after every tenth task.

The pass probabilities are those of FILE (`outcomes.py`), else those of the committed demo run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hillclimb.stats.paired import mcnemar_exact
from hillclimb.stats.power import paired_size
from hillclimb.stats.verdicts.compare import ENVIRONMENTS_LEVEL, LEVEL
from hillclimb.stats.verdicts.rule_v2 import RuleV2
from hillclimb.stats.verdicts.verdict import PairedSample, Selection

RESULTS = Path(__file__).resolve().parents[1] / "results"
NUM_CHECKPOINTS, NUM_LOOKS = 10, 10
NUM_ENVS, TASKS_PER_ENV = 14, 22
WANDER = 0.5
"""Standard deviation of a task's log odds around their mean, correlated 0.8 between neighbours."""
POWER_TASKS, POWER_CHANGED = 300, 0.3

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def p_of_gain(gained: int, lost: int, num_candidates: int, *, is_complete: bool) -> float:
    """Return rule v2's p-value of a gain; the number of unchanged tasks does not enter it."""
    if gained <= lost:
        return 1.0
    sample = PairedSample(
        before=0.5, after=0.5, differences=(Fraction(1),) * gained + (Fraction(-1),) * lost
    )
    selection = Selection(num_candidates=num_candidates, is_complete=is_complete)
    p_value = RuleV2().judge({"all": sample}, selection, level=LEVEL)["all"].p_adjusted
    assert p_value is not None
    return p_value


@cache
def v1_improves(gained: int, lost: int) -> bool:
    """Tell whether rule v1 says IMPROVED."""
    return gained > lost and mcnemar_exact(gained, lost) < LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Shares of null runs with a false IMPROVED."""

    num_runs: int
    num_tasks: int
    v1_last_checkpoint: float
    v1_looks: float
    """The last checkpoint, at any look."""
    v1_best: float
    """The best checkpoint, when complete."""
    v1_best_and_looks: float
    """Any checkpoint, at any look."""
    v2_last_checkpoint_and_looks: float
    v2_best_and_looks: float
    """Any checkpoint, at any look."""
    v2_any_environment: float
    """Any of the environments, for any checkpoint, at any look."""


def simulate(probabilities: Array, num_runs: int, seed: int) -> Errors:
    """Simulate null runs over tasks with these pass probabilities, [tasks]."""
    rng = np.random.default_rng(seed)
    envs = np.arange(len(probabilities)) % NUM_ENVS
    names = ("v1_last", "v1_looks", "v1_best", "v1_both", "v2_last", "v2_best", "v2_envs")
    hits = dict.fromkeys(names, 0)
    for _ in range(num_runs):
        order = rng.permutation(len(probabilities))
        before, after = null_run(probabilities, rng)
        for name, hit in _judge_run(before[order], after[:, order], envs[order]).items():
            hits[name] += hit
    share = {name: number / num_runs for name, number in hits.items()}
    return Errors(
        num_runs=num_runs,
        num_tasks=len(probabilities),
        v1_last_checkpoint=share["v1_last"],
        v1_looks=share["v1_looks"],
        v1_best=share["v1_best"],
        v1_best_and_looks=share["v1_both"],
        v2_last_checkpoint_and_looks=share["v2_last"],
        v2_best_and_looks=share["v2_best"],
        v2_any_environment=share["v2_envs"],
    )


def null_run(probabilities: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return passes before, [tasks], and after, [checkpoints, tasks]."""
    logits = np.log(probabilities / (1.0 - probabilities))
    noise = rng.normal(size=(NUM_CHECKPOINTS + 1, len(probabilities)))
    walk = np.empty_like(noise)
    walk[0] = noise[0]
    for i in range(1, len(noise)):
        walk[i] = 0.8 * walk[i - 1] + 0.6 * noise[i]
    shifted = 1.0 / (1.0 + np.exp(-(logits + WANDER * walk)))
    # What the walk adds to all tasks together is taken off again; clipping leaves a little of it.
    shifted = np.clip(shifted - shifted.mean(1, keepdims=True) + probabilities.mean(), 0.0, 1.0)
    passed = rng.random(shifted.shape) < shifted
    return passed[0], passed[1:]


def _judge_run(before: Array, after: Array, envs: Array) -> dict[str, bool]:
    gained, lost = after & ~before, before & ~after
    size = len(before)
    ends = [round(size * (look + 1) / NUM_LOOKS) for look in range(NUM_LOOKS)]
    total_g, total_l = gained.cumsum(1), lost.cumsum(1)
    counts = [
        [(int(g[e - 1]), int(w[e - 1])) for e in ends]
        for g, w in zip(total_g, total_l, strict=True)
    ]
    finals = [(g - w, g, w) for g, w in (row[-1] for row in counts)]
    _, best_g, best_l = max(finals)
    looks_v1 = [any(v1_improves(*at) for at in row) for row in counts]
    return {
        "v1_last": v1_improves(*counts[-1][-1]),
        "v1_looks": looks_v1[-1],
        "v1_best": v1_improves(best_g, best_l),
        "v1_both": any(looks_v1),
        "v2_last": _v2_hits(counts[-1:], 1),
        "v2_best": _v2_hits(counts, NUM_CHECKPOINTS),
        "v2_envs": _any_environment(gained, lost, envs, ends),
    }


def _v2_hits(counts: list[list[tuple[int, int]]], num_candidates: int) -> bool:
    """Tell whether any checkpoint is IMPROVED at any look."""
    return any(
        p_of_gain(*at, num_candidates, is_complete=look == len(row) - 1) <= LEVEL
        for row in counts
        for look, at in enumerate(row)
    )


def _any_environment(gained: Array, lost: Array, envs: Array, ends: list[int]) -> bool:
    """Tell whether any environment is IMPROVED for any checkpoint, at any look.

    Holm's procedure rejects something exactly if the smallest p-value times their number is at or
    below the level.
    """
    is_env = envs[:, None] == np.arange(NUM_ENVS)
    at = np.array(ends) - 1
    ups, downs = ((flips[:, :, None] & is_env).cumsum(1)[:, at] for flips in (gained, lost))
    most = ENVIRONMENTS_LEVEL / NUM_ENVS
    return any(
        p_of_gain(g, w, NUM_CHECKPOINTS, is_complete=look == NUM_LOOKS - 1) <= most
        for look in range(NUM_LOOKS)
        for g, w in set(
            zip(ups[:, look].ravel().tolist(), downs[:, look].ravel().tolist(), strict=True)
        )
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Shares of runs that are IMPROVED where the pass rate rose by `gain`."""

    gain: float
    v1: float
    v2: float
    share_of_tasks: float
    """Tasks until v2 decides, on average over runs and relative to all of them."""
    v1_size_for_80_percent: int
    """Tasks of the fixed test with power 0.8 (Connor's formula)."""


def power(gain: float, num_runs: int, seed: int) -> Power:
    """Simulate evaluations with a gain, looked at after every tenth task."""
    rng = np.random.default_rng(seed)
    up, down = (POWER_CHANGED + gain) / 2.0, (POWER_CHANGED - gain) / 2.0
    draws = rng.random((num_runs, POWER_TASKS))
    gained = (draws < up).cumsum(1)
    lost = ((draws >= up) & (draws < up + down)).cumsum(1)
    ends = range(10, POWER_TASKS + 1, 10)
    used, decided = 0, 0
    for g, w in zip(gained, lost, strict=True):
        for end in ends:
            is_complete = end == POWER_TASKS
            if p_of_gain(int(g[end - 1]), int(w[end - 1]), 1, is_complete=is_complete) <= LEVEL:
                decided += 1
                break
        used += end
    fixed = sum(v1_improves(int(g[-1]), int(w[-1])) for g, w in zip(gained, lost, strict=True))
    return Power(
        gain=gain,
        v1=fixed / num_runs,
        v2=decided / num_runs,
        share_of_tasks=used / num_runs / POWER_TASKS,
        v1_size_for_80_percent=round(paired_size(gain, down)) if gain else 0,
    )


def pass_probabilities(path: Path) -> Array:
    """Return smoothed pass rates of the tasks of a file, repeated to 14 environments."""
    tasks = json.loads(path.read_text())["tasks"]
    rates = np.array([(t["num_passed"] + 0.5) / (t["num_graded"] + 1.0) for t in tasks])
    rng = np.random.default_rng(0)
    return rng.choice(rates, size=NUM_ENVS * TASKS_PER_ENV)


def main() -> None:
    """Print the figures and write them to `results/verdicts.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--outcomes", type=Path, default=RESULTS / "demo_tasks.json")
    options = parser.parse_args()
    errors = simulate(pass_probabilities(options.outcomes), options.runs, seed=1)
    for name, value in asdict(errors).items():
        print(f"{name:32} {value if isinstance(value, int) else f'{value:.4f}'}")
    powers = [power(gain, min(options.runs, 5000), seed=2) for gain in (0.05, 0.1, 0.15, 0.2, 0.3)]
    for each in powers:
        print(f"gain {each.gain:.2f}: v1 {each.v1:.3f}, v2 {each.v2:.3f}, after"
              f" {each.share_of_tasks:.1%} of the tasks")  # fmt: skip
    facts = {"null": asdict(errors), "power": [asdict(each) for each in powers]}
    (RESULTS / "verdicts.json").write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
