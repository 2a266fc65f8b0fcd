"""The curriculum's effect on pass@1 and on the number of rollouts, measured on the demo.

    hillclimb up
    .venv/bin/python benchmarks/experiments/curriculum.py --out curriculum/

Four configurations of the demo, each with three seeds: even shares or `data.curriculum`, with and
without `algorithm.dynamic_sampling` (filter), which resamples prompts whose rollouts score alike.
The experiment's page goes to `--out`; `benchmarks/results/curriculum.json` gets, by configuration,
pass@1 at the end, the change from even shares with its interval, the share of groups with signal,
the rollouts, and how many of them led to the pass@1 that even shares reach at their end. Runs are
launched once: a repetition adopts them.
"""

from __future__ import annotations

import argparse
import json
import sys
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.experiments.through_cli import cli, experiment, wait  # noqa: E402
from hillclimb.client.client import Client  # noqa: E402
from hillclimb.client.connection import find_connection  # noqa: E402
from hillclimb.protocol.payloads.results.compute import ComputePayload  # noqa: E402
from hillclimb.protocol.payloads.studies.experiments import ArmResult  # noqa: E402

SPEC = ROOT / "examples" / "demo.yaml"
RESULT = ROOT / "benchmarks" / "results" / "curriculum.json"
EVEN = "even shares"
CURRICULUM = "data.curriculum.floor=0.2"
FILTER = (
    "algorithm.dynamic_sampling.type=filter",
    "algorithm.dynamic_sampling.max_sample_batches=4",
)
ARMS: dict[str, tuple[str, ...]] = {
    EVEN: (),
    "curriculum": (CURRICULUM,),
    "filter": FILTER,
    "filter and curriculum": (CURRICULUM, *FILTER),
}
HYPOTHESIS = (
    "A third of the demo's groups have signal, and two of its five environments are solved or"
    " hopeless: a curriculum that gives their prompts to the others raises held-out pass@1 by three"
    " points or more, and reaches a given pass@1 with fewer rollouts."
)
WATCH = ("eval/all/pass_at_1 >= +0.03",)


def main() -> int:
    """Run the experiment; exits with 1 if a run ended without a result."""
    options = _options()
    _create(options.key)
    for arm, settings in ARMS.items():
        role = "baseline" if arm == EVEN else "variant"
        sweep = ["sweep", str(SPEC), "--experiment", options.key, "--arm", arm, "--role", role]
        sweep += ["--seeds", options.seeds]
        for setting in (*options.shared, *settings):
            sweep += ["--set", setting]
        experiment([*sweep, "--retry"] if options.retry else sweep)
    states = wait(options.key, options.timeout_h)
    print(cli(["experiment", "report", options.key, "--out", str(options.out)]).stdout)
    results = _results(options.key)
    options.result.write_text(json.dumps(results, indent=1) + "\n")
    print(json.dumps(results["arms"], indent=1))
    return 0 if set(states) == {"done"} else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of pages and figures")
    parser.add_argument("--result", type=Path, default=RESULT)
    parser.add_argument("--key", default="curriculum-1", help="key of the experiment")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="shared")
    parser.add_argument("--retry", action="store_true", help="launch failed runs again")
    parser.add_argument("--timeout-h", type=float, default=24.0)
    return parser.parse_args()


def _create(key: str) -> None:
    """Create the experiment, or leave the one of an earlier start as it is."""
    if cli(["experiment", "show", key, "--json"], check=False).returncode == 0:
        return
    command = ["create", key, "--title", "Curriculum of the demo", "--hypothesis", HYPOTHESIS]
    for threshold in WATCH:
        command += ["--watch", threshold]
    command += ["--change", "data.curriculum=prompts go where groups have signal"]
    command += ["--change", "algorithm.dynamic_sampling=resample prompts without signal"]
    experiment(command)


def _results(key: str) -> dict[str, Any]:
    """Return the figures by configuration."""
    with Client(find_connection()) as client:
        answer = client.experiments.results(key)
        figures = {each.arm: each for each in client.experiments.figures(key).arms}
        ledgers = {
            each.arm: [client.compute(run.run_id) for run in each.runs if run.run_id]
            for each in answer.arms
        }
    paths = {
        name: [(_rollouts_before(ledgers[name], point.step), point.value) for point in each.curve]
        for name, each in figures.items()
    }
    arms = {each.arm: _figures(each, ledgers[each.arm], paths[each.arm]) for each in answer.arms}
    goal = arms[EVEN]["pass_at_1"]
    for name, path in paths.items():
        arms[name]["rollouts_to_goal"] = _first_at(path, goal)
    return {"goal": goal, "word": answer.word, "arms": arms}


def _figures(
    arm: ArmResult, ledgers: list[ComputePayload], path: list[tuple[float, float]]
) -> dict[str, Any]:
    training = [each.training for each in ledgers]
    change = arm.against_baseline and arm.against_baseline.all
    return {
        "pass_at_1": arm.last and arm.last.all.value,
        "pass_at_1_by_seed": [run.pass_at_1 for run in arm.runs],
        "envs": arm.last and {env: rate.value for env, rate in arm.last.envs.items()},
        "change": change and [change.value, change.low, change.high],
        "p": change and change.paired and change.paired.p_value,
        "rollouts": fmean(each.num_rollouts for each in training),
        "learned_share": fmean(each.num_learned / each.num_rollouts for each in training),
        "curve": [[round(rollouts), value] for rollouts, value in path],
    }


def _rollouts_before(ledgers: list[ComputePayload], step: int) -> float:
    """Return the mean number of training rollouts of runs up to and with a step."""
    return fmean(
        max(
            (row.cumulative_rollouts for row in ledger.rows
             if row.kind == "train" and row.step <= step),
            default=0,
        )
        for ledger in ledgers
    )  # fmt: skip


def _first_at(path: list[tuple[float, float]], goal: float) -> float | None:
    """Return the rollouts at which a line through the evaluations first reaches a rate."""
    for (before, low), (after, high) in pairwise(path):
        if low < goal <= high:
            return before + (after - before) * (goal - low) / (high - low)
    return None


if __name__ == "__main__":
    sys.exit(main())
