"""The demo's run as its guards see it, for the test that they trip nothing.

    .venv/bin/python benchmarks/statistics/guards_demo.py [--events FILE]

Runs the demo's spec through the trainer itself, or reads the `events.jsonl` of such a run, and
writes the figures that guards read to `benchmarks/results/guards_demo.json`: scores by group and
metrics of every step, and passes of every evaluation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from hillclimb.protocol.events import EVENTS, EvalCompleted, Event, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "guards_demo.json"
METRICS = (
    "reward/avg_raw_reward",
    "loss/avg_raw_advantages_abs",
    "policy/rollout_train_logprobs_abs_diff_mean",
    "timing/step",
    "timing/engine_busy",
    "timing/policy_train",
    "timing/fwd_logprobs_values_reward",
)


def demo() -> RunSpec:
    """Return the demo's spec."""
    return RunSpec.model_validate(yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text()))


def train() -> Sequence[Event]:
    """Run the demo in a trainer's process and return its events."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        run_dir, path = Path(folder) / "run", Path(folder) / "spec.json"
        path.write_text(demo().model_dump_json())
        python = str(ROOT / ".venv-trainer" / "bin" / "python")
        command = [python, "-m", "trainer", "run", "--spec", str(path), "--run-dir", str(run_dir)]
        subprocess.run(
            [*command, "--attempt", "1"],
            env=os.environ | {"HILLCLIMB_BLOBS_URL": str(Path(folder) / "blobs")},
            cwd=ROOT,
            check=True,
        )
        return read(run_dir / "attempt-1" / "events.jsonl")


def read(path: Path) -> Sequence[Event]:
    """Return the events of a run."""
    return [EVENTS.validate_json(line) for line in path.read_text().splitlines()]


def facts_of(event: Event) -> dict[str, Any] | None:
    """Return what guards read of an event; None where they read nothing."""
    if isinstance(event, StepCompleted):
        metrics = {name: event.metrics[name] for name in METRICS if name in event.metrics}
        size = demo().rollout.n_samples_per_prompt
        groups = scores(event.outcomes, size=size)
        return {"step": event.step, "metrics": metrics, "scores": groups}
    if isinstance(event, EvalCompleted):
        return {
            "step": event.step,
            "decoding": event.decoding,
            "temperature": event.temperature,
            "duration_s": event.duration_s,
            "passed": {
                key: "".join(tasks) for key, tasks in scores(event.outcomes, size=1).items()
            },
        }
    return None


def scores(rows: Iterable[OutcomeRow], *, size: int) -> dict[str, list[str]]:
    """Return the scores of each environment's groups, in the order of tasks; `x` without a grade.

    Evaluations have one rollout per task, and their tasks are always in the same order.
    """
    groups: dict[str, dict[tuple[str, int], str]] = {}
    for row in sorted(rows, key=lambda row: (row.env_key, row.task_key, row.sample_index)):
        score = "x" if row.score is None else f"{row.score:.0f}"
        of_env = groups.setdefault(row.env_key, {})
        place = (row.task_key, row.sample_index // size)
        of_env[place] = of_env.get(place, "") + score
    return {key: list(of_env.values()) for key, of_env in groups.items()}


def main() -> None:
    """Write the figures of the demo's run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--events", type=Path, help="events.jsonl of a run of the demo")
    path = parser.parse_args().events
    found = [facts_of(event) for event in (train() if path is None else read(path))]
    lines = ",\n".join(json.dumps(each) for each in found if each is not None)
    RESULT.write_text(f'{{"events": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
