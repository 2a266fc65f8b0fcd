"""Pass counts of the demo's eval tasks under its starting policy, for `verdicts.py`.

    .venv/bin/python benchmarks/statistics/demo_tasks.py [--samples 8]

Evaluates the demo's spec through the trainer itself, without training, several rollouts per task,
and writes `benchmarks/results/demo_tasks.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import yaml

from hillclimb.protocol.events import EVENTS, EvalCompleted
from hillclimb.spec.run import RunSpec
from hillclimb.stats.pass_rate import TaskCount, count_tasks

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "demo_tasks.json"


def spec_of(num_samples: int) -> RunSpec:
    """Return the demo's spec as an evaluation with several rollouts per task."""
    values = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    decoding = {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": num_samples}
    values |= {"name": "tasks", "kind": "eval"}
    values["eval"] = {"decodings": [decoding]}
    return RunSpec.model_validate(values)


def evaluate(spec: RunSpec) -> Sequence[TaskCount]:
    """Run the evaluation in a trainer's process and count its tasks."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        run_dir, path = Path(folder) / "run", Path(folder) / "spec.json"
        path.write_text(spec.model_dump_json())
        python = str(ROOT / ".venv-trainer" / "bin" / "python")
        command = [python, "-m", "trainer", "run", "--spec", str(path), "--run-dir", str(run_dir)]
        subprocess.run(
            [*command, "--attempt", "1"],
            env=os.environ | {"HILLCLIMB_BLOBS_URL": str(Path(folder) / "blobs")},
            cwd=ROOT,
            check=True,
        )
        lines = (run_dir / "attempt-1" / "events.jsonl").read_text().splitlines()
    events = [EVENTS.validate_json(line) for line in lines]
    (found,) = [event for event in events if isinstance(event, EvalCompleted)]
    return count_tasks(found.outcomes, pass_threshold=found.pass_threshold)


def main() -> None:
    """Evaluate, and write the counts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--samples", type=int, default=8, help="rollouts per task")
    spec = spec_of(parser.parse_args().samples)
    kept = ("task_key", "env_key", "num_graded", "num_passed")
    tasks = [{name: asdict(count)[name] for name in kept} for count in evaluate(spec)]
    facts = {"model": spec.model.source, "temperature": 1.0, "tasks": tasks}
    lines = ",\n".join(json.dumps(task) for task in tasks)
    RESULT.write_text(json.dumps(facts | {"tasks": []})[:-3] + f"[\n{lines}\n]}}\n")
    print(f"{len(tasks)} tasks, {sum(t['num_passed'] for t in tasks)} passes")


if __name__ == "__main__":
    main()
