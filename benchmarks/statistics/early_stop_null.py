"""False IMPROVED and power of evaluations that end when their verdict stands, in large numbers.

    .venv-trainer/bin/python benchmarks/statistics/early_stop_null.py [--runs N]

Null runs: the policies of `verdicts.py` wander without learning, correlated from checkpoint to
checkpoint, with the pass rates of the demo's tasks repeated to 14 environments. Every one of ten
evaluations takes the tasks in the run's random order and ends when it is decided; its report judges
all tasks and each environment over the tasks that it has. A run errs if any of its checkpoints is
IMPROVED. "Ten looks" looks after every tenth of an evaluation, the product after every task.

Power: 300 tasks of which 30 % change, early and complete, with the share of tasks until the
decision.

Counts of gained and lost tasks decide, so whole runs are arrays here; e-values and p-values are
those of the product's functions. `check` holds the decisions against `SequentialComparison` itself.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from verdicts import (
    NUM_CHECKPOINTS,
    NUM_ENVS,
    NUM_LOOKS,
    POWER_CHANGED,
    POWER_TASKS,
    RESULTS,
    Array,
    null_run,
    p_of_gain,
    pass_probabilities,
    v1_improves,
)

from hillclimb.stats.evidence import log_e_value
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.power import paired_size
from hillclimb.stats.verdicts.compare import ENVIRONMENTS_LEVEL, LEVEL
from hillclimb.stats.verdicts.rule_v2 import log_e_value_of_decision
from hillclimb.stats.verdicts.sequential import SequentialComparison
from hillclimb.stats.verdicts.verdict import MIN_TASKS, SATURATED_FROM, Selection, Verdict

GAINS = (0.05, 0.1, 0.15)
NUM_CHECKED = 200


@cache
def evidence(gained: int, lost: int) -> float:
    """Return the logarithm of the product's e-value of a gain."""
    return log_e_value({Fraction(1): gained, Fraction(-1): lost})


def evidence_table(size: int) -> Array:
    """Return the logarithms of the e-values, [gained, lost], where they can decide; else -inf."""
    table = np.full((size + 1, size + 1), -np.inf)
    least = log_e_value_of_decision(Selection(), level=LEVEL)
    for gained in range(size + 1):
        # No capital exceeds exp(change), so smaller changes do not decide.
        for lost in range(max(0, min(gained - int(least), size - gained) + 1)):
            table[gained, lost] = evidence(gained, lost)
    return table


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """How evaluations of one task order end, one entry for each."""

    num_tasks: Array
    """Tasks that have outcomes (count)."""
    is_early: Array
    gained: Array
    """Tasks gained among them (count)."""
    lost: Array
    candidates: Array
    """Checkpoints from which each may have been chosen."""

    def improved(self) -> Array:
        """Return which evaluations are IMPROVED over all their tasks, as their reports say."""
        return np.array(
            [
                p_of_gain(int(g), int(w), int(c), is_complete=not early) <= LEVEL
                for g, w, c, early in zip(
                    self.gained, self.lost, self.candidates, self.is_early, strict=True
                )
            ]
        )


def run_to_the_end(
    before: Array, after: Array, candidates: Array, table: Array, looks: Array
) -> Ends:
    """Return the ends of evaluations; tasks stand in their order.

    `before` and `after` are passes, [evaluations, tasks]; `looks` are numbers of tasks after which
    somebody looks.
    """
    size = before.shape[1]
    ups, downs = ((flips).cumsum(1) for flips in (after & ~before, before & ~after))
    bars = np.array(
        [log_e_value_of_decision(Selection(num_candidates=int(c)), level=LEVEL) for c in candidates]
    )[:, None]
    numbers = np.arange(1, size + 1)
    low = np.minimum(before.cumsum(1), after.cumsum(1)) / numbers
    is_gain = (table[ups, downs] >= bars) & (low < SATURATED_FROM)
    decides = (is_gain | (table[downs, ups] >= bars)) & (numbers >= MIN_TASKS) & (numbers < size)
    decides &= np.isin(numbers, looks)
    is_early = decides.any(1)
    ends = np.where(is_early, decides.argmax(1) + 1, size)
    rows = np.arange(len(ends))
    return Ends(
        num_tasks=ends,
        is_early=is_early,
        gained=ups[rows, ends - 1],
        lost=downs[rows, ends - 1],
        candidates=candidates,
    )


def any_environment(ends: Ends, before: Array, after: Array, envs: Array) -> Array:
    """Return in which evaluations a report calls any environment IMPROVED.

    Holm's procedure rejects something exactly if the smallest p-value times their number is at or
    below the level.
    """
    has = np.arange(before.shape[1]) < ends.num_tasks[:, None]
    members = (envs[:, None] == np.arange(NUM_ENVS)).astype(np.int64)
    ups, downs, tasks = (
        (flips & has).astype(np.int64) @ members
        for flips in (after & ~before, before & ~after, np.ones_like(before))
    )
    found = np.zeros(len(before), dtype=bool)
    for i in np.flatnonzero((ups - downs).max(1) > 0):
        family = (tasks[i] > 0).sum()
        found[i] = any(
            n >= MIN_TASKS
            and p_of_gain(g, w, int(ends.candidates[i]), is_complete=not ends.is_early[i]) * family
            <= ENVIRONMENTS_LEVEL
            for g, w, n in zip(ups[i].tolist(), downs[i].tolist(), tasks[i].tolist(), strict=True)
        )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class NullErrors:
    """Shares of null runs with a false IMPROVED, and of the tasks that were rolled out."""

    looks: str
    """`task`, `tenth`, or `end` for complete evaluations."""
    last_checkpoint: float
    any_checkpoint: float
    """Any of ten: each of the first nine may be chosen, and counts as one of ten."""
    any_environment: float
    """Any of 14 environments, for any checkpoint."""
    tasks: float


def null_errors(probabilities: Array, num_runs: int) -> list[NullErrors]:
    """Simulate null runs over tasks with these pass probabilities, [tasks]."""
    rng = np.random.default_rng(1)
    size = len(probabilities)
    candidates = np.array([NUM_CHECKPOINTS] * (NUM_CHECKPOINTS - 1) + [1])
    table = evidence_table(size)
    everywhere = np.arange(1, size + 1)
    tenths = np.array([round(size * (look + 1) / NUM_LOOKS) for look in range(NUM_LOOKS)])
    kinds = {"task": everywhere, "tenth": tenths, "end": np.array([size])}
    hits = {kind: np.zeros(4) for kind in kinds}
    for _ in range(num_runs):
        order = rng.permutation(size)
        first, later = null_run(probabilities, rng)
        before = np.broadcast_to(first[order], later.shape)
        after, envs = later[:, order], (np.arange(size) % NUM_ENVS)[order]
        for kind, looks in kinds.items():
            ends = run_to_the_end(before, after, candidates, table, looks)
            is_improved = ends.improved()
            hits[kind] += (
                is_improved[-1],
                is_improved.any(),
                any_environment(ends, before, after, envs).any(),
                ends.num_tasks.mean() / size,
            )
    return [
        NullErrors(
            looks=kind,
            last_checkpoint=round(float(sums[0]) / num_runs, 6),
            any_checkpoint=round(float(sums[1]) / num_runs, 6),
            any_environment=round(float(sums[2]) / num_runs, 6),
            tasks=round(float(sums[3]) / num_runs, 6),
        )
        for kind, sums in hits.items()
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """Shares of planned evaluations that are IMPROVED where the pass rate rose by `gain`."""

    gain: float
    v1: float
    complete: float
    """Under v2, after all tasks."""
    early: float
    """Under v2, with a look after every task."""
    tasks: float
    """Share of the tasks until the end, on average."""
    fixed_tasks_for_80_percent: int
    """Tasks of the smallest complete evaluation with power 0.8 (Connor's formula)."""


def power(gain: float, num_runs: int) -> Power:
    """Simulate planned evaluations with a gain."""
    rng = np.random.default_rng([2, round(100 * gain)])
    up, down = (POWER_CHANGED + gain) / 2.0, (POWER_CHANGED - gain) / 2.0
    draws = rng.random((num_runs, POWER_TASKS))
    before = (draws >= up) & (draws < up + 0.45)
    after = (draws < up) | ((draws >= up + down) & (draws < up + 0.45))
    candidates = np.ones(num_runs, dtype=np.int64)
    table = evidence_table(POWER_TASKS)
    ends, complete = (
        run_to_the_end(before, after, candidates, table, looks)
        for looks in (np.arange(1, POWER_TASKS), np.array([POWER_TASKS]))
    )
    pairs = zip(complete.gained.tolist(), complete.lost.tolist(), strict=True)
    return Power(
        gain=gain,
        v1=sum(v1_improves(g, w) for g, w in pairs) / num_runs,
        complete=float(complete.improved().mean()),
        early=float(ends.improved().mean()),
        tasks=round(float(ends.num_tasks.mean()) / POWER_TASKS, 6),
        fixed_tasks_for_80_percent=math.ceil(paired_size(gain, down)),
    )


def check(probabilities: Array) -> int:
    """Compare ends with those of the product's own comparison; return how many were early."""
    rng = np.random.default_rng(3)
    table = evidence_table(len(probabilities))
    num_early = 0
    for number in range(NUM_CHECKED):
        first, later = null_run(probabilities, rng)
        # Gains and losses of up to a quarter, so that many evaluations are decided.
        lift = rng.random(len(first)) < 0.25 * number / NUM_CHECKED
        passes = later[0] | lift if number % 2 else later[0] & ~lift
        candidates = np.array([1 if number % 3 else NUM_CHECKPOINTS])
        looks = np.arange(1, len(first) + 1)
        ends = run_to_the_end(first[None], passes[None], candidates, table, looks)
        comparison = SequentialComparison(
            [_count(i, passed) for i, passed in enumerate(first.tolist())],
            [("env", str(i)) for i in range(len(first))],
            num_candidates=int(candidates[0]),
        )
        for i, passed in enumerate(passes.tolist()):
            comparison.add(i, _count(i, passed))
        decision = comparison.decision
        assert (decision is not None) == bool(ends.is_early[0])
        if decision is not None:
            num_early += 1
            assert decision.num_tasks == ends.num_tasks[0]
            assert (decision.verdict is Verdict.IMPROVED) == bool(ends.improved()[0])
    return num_early


def _count(index: int, passed: bool) -> TaskCount:  # noqa: FBT001
    return TaskCount(
        task_key=str(index), env_key="env", template="t", held_out_template=False,
        num_graded=1, num_passed=int(passed), num_missing=0,
    )  # fmt: skip


def main() -> None:
    """Check, simulate, print and write `results/early_stop_null.json`."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=10_000)
    runs = parser.parse_args().runs
    began = time.monotonic()
    probabilities = pass_probabilities(RESULTS / "demo_tasks.json")
    num_early = check(probabilities)
    print(f"{NUM_CHECKED} evaluations end as the product's do, {num_early} of them early")
    null = null_errors(probabilities, runs)
    powers = [power(gain, runs) for gain in GAINS]
    for each in (*null, *powers):
        print(asdict(each), flush=True)
    print(f"{time.monotonic() - began:.0f} s")
    facts = {
        "num_runs": runs,
        "num_tasks": len(probabilities),
        "num_checked": NUM_CHECKED,
        "num_checked_early": num_early,
        "null": [asdict(each) for each in null],
        "power": [asdict(each) for each in powers],
    }
    (RESULTS / "early_stop_null.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
