"""How often rule `experiment-v1` and the pooled comparison alone call a gain, with few seeds.

    .venv/bin/python benchmarks/statistics/families.py --repetitions 2000

Families of 1, 3 and 5 runs over 120 tasks whose difficulty varies from 0.1 to 0.9; the strength of
a run varies with its seed by the standard deviation in the first columns. The threshold is
`eval/all/pass_at_1 > +0`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.compare import compare
from hillclimb.stats.verdicts.experiments.families import Runs, family_change
from hillclimb.stats.verdicts.experiments.watched import (
    Figure,
    Threshold,
    ThresholdReading,
    read_threshold,
)
from hillclimb.stats.verdicts.verdict import Verdict

RESULTS = Path(__file__).resolve().parents[1] / "results" / "families.json"
NUM_TASKS = 120
CASES = (
    # runs of each side, standard deviation between seeds, gain
    (1, 0.0, 0.0), (1, 0.05, 0.0), (3, 0.0, 0.0), (3, 0.03, 0.0), (3, 0.08, 0.0), (5, 0.05, 0.0),
    (3, 0.03, 0.15), (3, 0.03, 0.25), (5, 0.03, 0.15),
)  # fmt: skip
ANY_GAIN = Threshold(operator=">", bound=0.0, is_change=True)


def main() -> None:
    """Simulate each case and write the shares."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    cases = [_simulate(rng, *case, arguments.repetitions) for case in CASES]
    RESULTS.write_text(json.dumps(vars(arguments) | {"cases": cases}, indent=2) + "\n")
    for case in cases:
        print(json.dumps(case))


def _simulate(
    rng: random.Random, num_runs: int, sd: float, gain: float, repetitions: int
) -> dict[str, Any]:
    readings: Counter[ThresholdReading] = Counter()
    improved = covered = 0
    for _ in range(repetitions):
        tasks = [rng.uniform(0.1, 0.9) for _ in range(NUM_TASKS)]
        before = _family(rng, tasks, 0.0, sd, num_runs)
        after = _family(rng, tasks, gain, sd, num_runs)
        change = family_change(before, after)
        word = compare(_pooled(before), _pooled(after)).overall.verdict
        figure = Figure(value=change.value, interval=(change.low, change.high), word=word)
        readings[read_threshold(ANY_GAIN, figure)[0]] += 1
        improved += word is Verdict.IMPROVED
        covered += change.low <= gain <= change.high
    return {
        "num_runs": num_runs,
        "seed_sd": sd,
        "gain": gain,
        "met": readings[ThresholdReading.MET] / repetitions,
        "missed": readings[ThresholdReading.MISSED] / repetitions,
        "pooled_improved": improved / repetitions,
        "interval_covers": covered / repetitions,
    }


def _family(rng: random.Random, tasks: list[float], lift: float, sd: float, runs: int) -> Runs:
    strengths = [rng.gauss(lift, sd) for _ in range(runs)]
    return [
        [_count(task, passed=rng.random() < p + strength) for task, p in enumerate(tasks)]
        for strength in strengths
    ]


def _pooled(runs: Runs) -> list[TaskCount]:
    numbers = [sum(run[task].num_passed for run in runs) for task in range(NUM_TASKS)]
    return [_count(task, passed=number, graded=len(runs)) for task, number in enumerate(numbers)]


def _count(task: int, *, passed: int, graded: int = 1) -> TaskCount:
    return TaskCount(
        task_key=str(task),
        env_key="booking",
        template="t",
        held_out_template=False,
        num_graded=graded,
        num_passed=int(passed),
        num_missing=0,
    )


if __name__ == "__main__":
    main()
