"""Measures the time that the qualification of checkpoints adds to the demo's run.

    .venv/bin/python benchmarks/trainer/qualification_cost.py [--pairs 3] [--out FILE]

Runs the demo's spec through the trainer itself (no service), with and without
`checkpoints.qualify`, alternately, and prints seconds of wall clock and of CPU of each run, the
ratio of the sums, and the duration of each trial. The wall clock is from the start of the process
to its end, so the wait for the last trial is in it. CPU is that of the whole machine, as Ray's
processes are nobody's children: let nothing else run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import yaml

from hillclimb.protocol.events import EVENTS, CheckpointQualified
from hillclimb.spec.run import RunSpec

ROOT = Path(__file__).resolve().parents[2]
TRAINER_PYTHON = ROOT / ".venv-trainer" / "bin" / "python"


def measure(*, qualify: bool) -> dict[str, Any]:
    """Run the demo once and return its figures."""
    values = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    values["checkpoints"]["qualify"] = qualify
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        run_dir, spec = Path(folder) / "run", Path(folder) / "spec.json"
        spec.write_text(RunSpec.model_validate(values).model_dump_json())
        cpu, started = cpu_s(), time.perf_counter()
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
        wall_s = time.perf_counter() - started
        lines = (run_dir / "attempt-1" / "events.jsonl").read_bytes().splitlines()
        events = [EVENTS.validate_json(line) for line in lines]
    trials = [event.duration_s for event in events if isinstance(event, CheckpointQualified)]
    return {
        "qualify": qualify,
        "wall_s": round(wall_s, 1),
        "cpu_s": round(cpu_s() - cpu, 1),
        "trials_s": [round(duration, 1) for duration in trials],
    }


def cpu_s() -> float:
    """Return the seconds that the machine's processors have worked."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def main() -> None:
    """Run the pairs and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--out", type=Path, help="file for the figures (JSON)")
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    for number in range(args.pairs):
        # Alternately first: a machine that slows down must not favour one of them.
        for qualify in (True, False) if number % 2 else (False, True):
            runs.append(measure(qualify=qualify))
            print(json.dumps(runs[-1]), flush=True)
    added = {unit: added_share(runs, unit) for unit in ("wall_s", "cpu_s")}
    for unit, share in added.items():
        print(f"{unit}: {share:+.1%}")
    if args.out is not None:
        machine = f"{os.cpu_count()} cores, {platform.machine()}"
        facts = {"runs": runs, "added": added, "machine": machine}
        args.out.write_text(json.dumps(facts, indent=1) + "\n")


def added_share(runs: list[dict[str, Any]], unit: str) -> float:
    """Return the share by which the runs with trials take more of a unit than those without."""
    with_trials, without = (
        sum(run[unit] for run in runs if run["qualify"] is qualify) for qualify in (True, False)
    )
    return round(with_trials / without - 1.0, 4)


if __name__ == "__main__":
    main()
