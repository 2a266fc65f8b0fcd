"""Measures what storing the learner's values of each token costs the demo's run.

    .venv/bin/python benchmarks/trainer/token_values_cost.py [--pairs 4] [--steps 8]

Runs the first steps of the demo's spec through the trainer itself (no service) in one process with
the torch engine, with and without `learner.store_token_values`, alternately, without evaluations.
Prints per run the median seconds of a step, of its update and of storing; at last their medians
over all steps of a side, the size of the files per rollout and token, and which gaps they hold. The
result is stored under `benchmarks/results/token_values_cost.json`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from hillclimb.protocol.events import EVENTS, StepCompleted
from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues, StoredTrajectory
from hillclimb.spec.run import RunSpec
from hillclimb.stats.trajectories.tokens import tokens_of

ROOT = Path(__file__).resolve().parents[2]
TRAINER_PYTHON = ROOT / ".venv-trainer" / "bin" / "python"
RESULT = ROOT / "benchmarks" / "results" / "token_values_cost.json"
TIMES = ("timing/step", "timing/policy_train", "timing/store_token_values")


def measure(*, steps: int, stores: bool) -> dict[str, Any]:
    """Run the first steps of the demo once and return its figures."""
    values = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    values["learner"] = values.get("learner", {}) | {"store_token_values": stores}
    values["schedule"]["total_steps"] = steps
    values["eval"] = values.get("eval", {}) | {"interval": 0, "before_training": False}
    values["data"]["eval_tasks_per_env"] = 1
    values["checkpoints"]["qualify"] = False
    values["placement"], values["engine"] = {"type": "inline"}, {"type": "torch"}
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        run_dir, spec = Path(folder) / "run", Path(folder) / "spec.json"
        spec.write_text(RunSpec.model_validate(values).model_dump_json())
        subprocess.run(
            [
                *(str(TRAINER_PYTHON), "-m", "trainer", "run", "--spec", str(spec)),
                *("--run-dir", str(run_dir), "--attempt", "1"),
            ],
            env=os.environ | {"HILLCLIMB_BLOBS_URL": str(Path(folder) / "blobs")},
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        attempt = run_dir / "attempt-1"
        events = [EVENTS.validate_json(line) for line in (attempt / "events.jsonl").open()]
        found = [event.metrics for event in events if isinstance(event, StepCompleted)]
        sizes = files(attempt) if stores else {}
    # The first step loads what the others find loaded.
    times = {name: [round(each[name], 5) for each in found[1:]] for name in TIMES}
    return {"stores": stores, "times": times, **sizes}


def files(attempt: Path) -> dict[str, Any]:
    """Return the sizes of an attempt's files, and what is in them."""
    gaps: list[float] = []
    num_learned = num_tokens = 0
    for path in sorted((attempt / "token-values").iterdir()):
        beside = attempt / "trajectories" / path.name
        with gzip.open(beside) as trajectories, gzip.open(path) as lines:
            for line, trajectory in zip(lines, trajectories, strict=True):
                values = StoredTokenValues.model_validate_json(line)
                if values.state == "learned":
                    tokens = tokens_of(StoredTrajectory.model_validate_json(trajectory), values)
                    num_learned += 1
                    num_tokens += sum(tokens.drawn)
                    # Later mini-batches differ because of the updates before them.
                    if values.num_updates == 0:
                        gaps += map(abs, tokens.gaps or ())
    gaps.sort()
    return {
        "num_learned": num_learned,
        "num_tokens": num_tokens,
        "bytes_values": folder_bytes(attempt / "token-values"),
        "bytes_trajectories": folder_bytes(attempt / "trajectories"),
        "bytes_vocabulary": (attempt / "vocabulary.json.gz").stat().st_size,
        "gap_median": gaps[len(gaps) // 2],
        "gap_p99": gaps[len(gaps) * 99 // 100],
        "gap_max": gaps[-1],
    }


def folder_bytes(folder: Path) -> int:
    """Return the bytes of a folder's files."""
    return sum(path.stat().st_size for path in folder.iterdir())


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the medians over all steps of both sides, and the sizes per rollout and token."""
    medians = {
        side: {
            name: median(
                time for run in runs if run["stores"] is stores for time in run["times"][name]
            )
            for name in TIMES
        }
        for side, stores in (("with", True), ("without", False))
    }
    stored = [run for run in runs if run["stores"]]
    total = {
        name: sum(run[name] for run in stored)
        for name in ("num_learned", "num_tokens", "bytes_values", "bytes_trajectories")
    }
    ours = medians["with"]
    return {
        "median_s": medians,
        "share_of_step": ours["timing/store_token_values"] / ours["timing/step"],
        "step_ratio": ours["timing/step"] / medians["without"]["timing/step"],
        "update_ratio": ours["timing/policy_train"] / medians["without"]["timing/policy_train"],
        "bytes_per_rollout": total["bytes_values"] / total["num_learned"],
        "bytes_per_token": total["bytes_values"] / total["num_tokens"],
        "share_of_trajectories": total["bytes_values"] / total["bytes_trajectories"],
    }


def main() -> None:
    """Run the pairs, print their summary and store all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    runs = []
    for number in range(arguments.pairs):
        # Alternately first: a machine that slows down must not favour one of them.
        for stores in (True, False) if number % 2 else (False, True):
            runs.append(measure(steps=arguments.steps, stores=stores))
            print({name: median(times) for name, times in runs[-1]["times"].items()}, flush=True)
    figures = summary(runs)
    RESULT.write_text(json.dumps({**figures, "runs": runs}, indent=1) + "\n")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
