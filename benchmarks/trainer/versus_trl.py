"""Our trainer against TRL's GRPOTrainer: seconds of training to the same held-out pass@1.

    python benchmarks/trainer/versus_trl.py --trl-python PATH [--runs 3]

Both start from the same weights and see the same tasks in the same order, with the same caps on
tokens and turns and the same reward; both are measured on the same 300 held-out tasks by our
rollouts and grading (ours on the run's own engine, TRL's weights on our torch engine), whose time
counts for neither. TRL has one thread (with two it kept one core busy all the same), each of our
processes one too. Ours runs in two ways (`OURS`): in one process, as TRL does, and on Ray and vLLM.

Ours is tuned in nothing but the learning rate, which is the one that TRL is best with.

First every configuration of TRL (`trl_peer.CONFIGS`) runs once, `--at-once` of them side by side;
then ours and TRL's best alternate alone, so that a noisy machine is noisy for both. `--best NAME`
takes what an earlier tuning found. Writes `benchmarks/results/versus_trl.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import yaml

from hillclimb.protocol.events import EVENTS, EvalCompleted, StepCompleted
from hillclimb.stats.pass_rate import count_tasks, pass_rate

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "versus_trl.json"
CONFIGS = ("plain", "hotter", "one update", "small micro-batches")
"""Of `trl_peer.CONFIGS`; on a CPU bf16 and continuous batching take longer from the first step on,
so they are left out unless asked for."""
LEARNING_RATES = {"hotter": 5e-4}
"""Of the configurations that do not have the demo's."""
OURS: dict[str, dict[str, dict[str, str]]] = {
    "in one process": {"engine": {"type": "torch"}, "placement": {"type": "inline"}},
    "on Ray and vLLM": {"engine": {"type": "vllm"}, "placement": {"type": "ray"}},
}
"""Our settings by name; the first has one process, as TRL has."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run stood: seconds of training so far, held-out sampled pass@1 in per cent."""

    step: int
    wall_s: float
    sampled: float


def seconds_to(curve: list[Point], target: float) -> float | None:
    """Seconds until sampled pass@1 first reached `target`, linear between two measurements."""
    for before, after in pairwise(curve):
        if after.sampled >= target > before.sampled:
            share = (target - before.sampled) / (after.sampled - before.sampled)
            return before.wall_s + share * (after.wall_s - before.wall_s)
    return None


@dataclass(frozen=True)
class Ours:
    """How ours is run."""

    steps: int
    every: int
    lr: float | None
    """None takes the demo's."""


def ours(settings: dict[str, dict[str, str]], how: Ours, seed: int) -> list[Point]:
    """The curve of one run of our trainer, without the service."""
    spec = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text()) | settings
    spec["schedule"] |= {"total_steps": how.steps, "seed": seed}
    spec["optimizer"] |= {} if how.lr is None else {"lr": how.lr}
    sampled = [each for each in spec["eval"]["decodings"] if each["name"] == "sampled"]
    spec["eval"] |= {"interval": how.every, "decodings": sampled}
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as root:
        path = Path(root) / "spec.json"
        path.write_text(json.dumps(spec))
        run_dir = Path(root) / "runs" / "run_bench"
        command = ["-m", "trainer", "run", "--spec", str(path), "--run-dir", str(run_dir)]
        python = ROOT / ".venv-trainer" / "bin" / "python"
        subprocess.run(
            [str(python), *command, "--attempt", "1"],
            check=True, env=os.environ | ONE_THREAD, capture_output=True,
        )  # fmt: skip
        lines = (run_dir / "attempt-1" / "events.jsonl").read_bytes().splitlines()
    return _curve(lines)


def _curve(lines: list[bytes]) -> list[Point]:
    """Points from a run's events: an evaluation follows the step it measures."""
    wall_s, points = 0.0, list[Point]()
    for event in map(EVENTS.validate_json, lines):
        if isinstance(event, StepCompleted):
            wall_s += event.metrics["timing/step"]
        if isinstance(event, EvalCompleted):
            counts = count_tasks(event.outcomes, pass_threshold=event.pass_threshold)
            rate = 100.0 * (pass_rate(counts, k=1).value or 0.0)
            points.append(Point(event.step, wall_s, rate))
    return points


@dataclass(frozen=True, slots=True)
class Trl:
    """How TRL is run."""

    python: Path
    steps: int
    every: int


def theirs(trl: Trl, config: str, seed: int) -> list[Point]:
    """The curve of one run of TRL."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as root:
        out = Path(root) / "peer.json"
        subprocess.run(
            [str(trl.python), "-m", "benchmarks.trainer.trl_peer", "--config", config,
             "--seed", str(seed), "--steps", str(trl.steps),
             "--eval-every", str(trl.every), "--out", str(out)],
            check=True, cwd=ROOT, capture_output=True,
            env=os.environ | ONE_THREAD,
        )  # fmt: skip
        curve = json.loads(out.read_text())["curve"]
    return [Point(p["step"], p["wall_s"], p["sampled"]) for p in curve]


def tune(trl: Trl, options: argparse.Namespace) -> dict[str, float | None]:
    """Seconds to the target by configuration."""
    with ThreadPoolExecutor(options.at_once) as side_by_side:
        curves = side_by_side.map(lambda config: theirs(trl, config, 0), options.configs)
        found = {
            config: seconds_to(curve, options.target)
            for config, curve in zip(options.configs, curves, strict=True)
        }
    print("TRL's tuning:", found, flush=True)
    return found


def main() -> None:
    """Alternate the two and report the ratio of medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trl-python", type=Path, required=True, help="see README.md")
    parser.add_argument("--configs", nargs="+", default=list(CONFIGS), help="TRL is tuned over")
    parser.add_argument("--best", help="take this one, tune nothing")
    parser.add_argument("--ways", nargs="+", choices=list(OURS), default=list(OURS))
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--every", type=int, default=2)
    parser.add_argument("--target", type=float, default=50.0, help="sampled pass@1, per cent")
    options = parser.parse_args()
    trl = Trl(options.trl_python, options.steps, options.every)
    earlier = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tuning = earlier.get("tuning", {}) if options.best else tune(trl, options)
    if options.best and "tuning_target" not in earlier:
        parser.error(f"--best needs a tuning in {RESULTS}")
    best = options.best or min(tuning, key=lambda config: tuning[config] or float("inf"))
    how = Ours(options.steps, options.every, LEARNING_RATES.get(best))
    pairs = []
    for run in range(options.runs):
        pair = {name: ours(OURS[name], how, run) for name in options.ways} | {
            "TRL": theirs(trl, best, run)
        }
        pairs.append({name: [asdict(point) for point in curve] for name, curve in pair.items()})
        for name, curve in pair.items():
            reached_s = seconds_to(curve, options.target)
            print(f"run {run} {name:16} {reached_s} s to {options.target}", flush=True)
    reached = {
        name: [seconds_to([Point(**p) for p in pair[name]], options.target) for pair in pairs]
        for name in (*options.ways, "TRL")
    }
    ratios = {name: _ratio(reached["TRL"], reached[name]) for name in options.ways}
    print(f"ratios of medians: {ratios}")
    tuned_to = earlier["tuning_target"] if options.best else options.target
    document = {"config": best, "tuning": tuning, "tuning_target": tuned_to, "lr": how.lr,
                "steps": options.steps, "target": options.target, "seconds": reached,
                "ratios": ratios, "runs": pairs}  # fmt: skip
    RESULTS.write_text(json.dumps(document, indent=2) + "\n")


def _ratio(theirs_s: list[float | None], ours_s: list[float | None]) -> float | None:
    """Of medians; None where a run did not reach the target."""
    known = [[s for s in each if s is not None] for each in (theirs_s, ours_s)]
    if any(len(each) < len(theirs_s) for each in known):
        return None
    return median(known[0]) / median(known[1])


if __name__ == "__main__":
    main()
