"""Does it learn, and is that more than noise? Three seeds, two warm starts, one control.

    .venv/bin/python benchmarks/experiments/learning.py [--steps 30] [--jobs 1] [--only NAME]

Runs the demo's spec through the trainer itself (no service), once per variant, each in a process
of its own, and compares the evaluation before with the one after by the code the API uses.
Writes `benchmarks/results/learning.json` and prints the table.

The control permutes the rewards over the rollouts of a step (`algorithm.shuffle_rewards`): what
its curve does is what chance, and a shift towards shorter episodes, can do without any signal.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hillclimb.protocol.events import EVENTS, EvalCompleted, TrainerEnded
from hillclimb.spec.run import RunSpec
from hillclimb.stats.verdicts.compare import Comparison, compare_rows

ROOT = Path(__file__).resolve().parents[2]
TRAINER_PYTHON = ROOT / ".venv-trainer" / "bin" / "python"
RESULTS = ROOT / "benchmarks" / "results" / "learning.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One training run of the benchmark."""

    name: str
    model: str
    seed: int
    shuffle_rewards: bool = False


VARIANTS = (
    Variant(name="warm start a, seed 0", model="builtin:tiny-qwen3-a", seed=0),
    Variant(name="warm start a, seed 1", model="builtin:tiny-qwen3-a", seed=1),
    Variant(name="warm start a, seed 2", model="builtin:tiny-qwen3-a", seed=2),
    Variant(name="warm start b, seed 0", model="builtin:tiny-qwen3-b", seed=0),
    Variant(
        name="control: shuffled rewards", model="builtin:tiny-qwen3-a", seed=0, shuffle_rewards=True
    ),
)


def spec_of(variant: Variant, steps: int | None) -> RunSpec:
    """Return the demo's spec with the variant's model, seeds and control."""
    values = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    values["name"] = "bench"
    values["model"] = {"source": variant.model}
    values["data"]["seed"] = variant.seed
    values["schedule"]["seed"] = variant.seed
    values.setdefault("algorithm", {})["shuffle_rewards"] = variant.shuffle_rewards
    values["eval"]["interval"] = 0
    if steps is not None:
        values["schedule"]["total_steps"] = steps
    return RunSpec.model_validate(values)


def train(variant: Variant, steps: int | None) -> dict[str, Any]:
    """Run one variant to its end and return its figures."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        run_dir = Path(folder) / "run"
        spec = Path(folder) / "spec.json"
        spec.write_text(spec_of(variant, steps).model_dump_json())
        command = [str(TRAINER_PYTHON), "-m", "trainer", "run", "--spec", str(spec)]
        environment = os.environ | {"HILLCLIMB_BLOBS_URL": str(Path(folder) / "blobs")}
        finished = subprocess.run(
            [*command, "--run-dir", str(run_dir), "--attempt", "1"],
            env=environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if finished.returncode:
            sys.exit(f"{variant.name} failed:\n{finished.stdout[-2000:]}{finished.stderr[-2000:]}")
        lines = (run_dir / "attempt-1" / "events.jsonl").read_text().splitlines()
    return figures(variant, [EVENTS.validate_json(line) for line in lines])


def figures(variant: Variant, events: list[Any]) -> dict[str, Any]:
    """Return before, after, interval and p per decoding, and the training time."""
    evals = [event for event in events if isinstance(event, EvalCompleted)]
    end = next(event for event in events if isinstance(event, TrainerEnded))
    last = max(event.step for event in evals)
    by_key = {(event.step, event.decoding): event for event in evals}
    result: dict[str, Any] = {"name": variant.name, "training_seconds": end.training_seconds}
    for decoding in sorted({event.decoding for event in evals}):
        before, after = by_key[0, decoding], by_key[last, decoding]
        table = compare_rows(before.outcomes, after.outcomes, pass_threshold=before.pass_threshold)
        result[decoding] = facts(table.overall) | {
            "environments": {key: facts(value) for key, value in table.by_env.items()},
            "held_out_templates": facts(table.held_out_templates),
        }
    return result


def facts(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison as JSON."""
    return {
        "n": comparison.num_paired,
        "before": comparison.before.value,
        "after": comparison.after.value,
        "after_interval": [comparison.after.low, comparison.after.high],
        "p_value": comparison.p_value,
        "num_gained": comparison.num_gained,
        "num_lost": comparison.num_lost,
        "verdict": comparison.verdict.value,
    }


def rows(results: list[dict[str, Any]]) -> Iterator[str]:
    """Return the printed table, in percent."""
    yield f"{'variant':<28}{'decoding':<10}{'n':>5}{'before':>8}{'after':>8}{'p':>10}{'train s':>9}"
    for result in results:
        for decoding in ("sampled", "greedy"):
            whole = result[decoding]
            yield (
                f"{result['name']:<28}{decoding:<10}{whole['n']:>5}{100 * whole['before']:>8.1f}"
                f"{100 * whole['after']:>8.1f}{whole['p_value']:>10.2g}"
                f"{result['training_seconds']:>9.0f}"
            )


def main() -> None:
    """Run the variants that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, help="training steps instead of the demo's")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side")
    parser.add_argument("--only", help="only variants whose name contains this")
    options = parser.parse_args()
    chosen = [variant for variant in VARIANTS if not options.only or options.only in variant.name]
    with ThreadPoolExecutor(max_workers=options.jobs) as pool:
        results = list(pool.map(lambda variant: train(variant, options.steps), chosen))
    print("\n".join(rows(results)))
    if not options.only:
        RESULTS.parent.mkdir(exist_ok=True)
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        document = {"machine": machine, "jobs": options.jobs, "results": results}
        RESULTS.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
