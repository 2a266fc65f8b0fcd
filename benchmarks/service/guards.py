"""The time that guards add to ingest, measured in one run with and without them.

    .venv/bin/python -m benchmarks.service.guards [--steps N]

PostgreSQL runs as `hillclimb up` starts it. Three runs report the same steps in turn, each step in
a batch of its own: one with the guards of the defaults, one with all guards off, and one whose
rollouts partly lack a grade, so that guards count its outcomes. A step has 160 rollouts and 150
metrics, an evaluation 300 tasks. Writes `benchmarks/results/guards_ingest.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.tables.database import Database
from benchmarks.service.outcomes import postgres
from hillclimb.protocol.events import EvalCompleted, Event, StepCompleted
from hillclimb.spec.monitoring.guards import GUARDS
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import Story, rollout
from tests.fixtures.migrated import migrate

RESULT = Path(__file__).parents[1] / "results" / "guards_ingest.json"
ENVS, TASKS, SAMPLES = ("booking", "github", "outlook", "reddit", "ticketmaster"), 4, 8
EVAL_EVERY, EVAL_TASKS, NUM_METRICS = 10, 60, 150
OFF = {name: {"policy": None} for name in GUARDS}
READ = {
    "reward/avg_raw_reward": 0.5,
    "loss/avg_raw_advantages_abs": 0.4,
    "policy/rollout_train_logprobs_abs_diff_mean": 0.01,
    "timing/step": 4.0,
    "timing/engine_busy": 2.5,
    "timing/policy_train": 1.0,
    "timing/fwd_logprobs_values_reward": 0.0,
}
Times = dict[str, list[float]]


def spec(guards: Mapping[str, Any], steps: int) -> RunSpec:
    """Return the spec of a run with these guards."""
    body = {"name": "guards", "data": {"env_keys": ENVS}, "guards": guards}
    sections = {"rollout": {"n_samples_per_prompt": SAMPLES}, "schedule": {"total_steps": steps}}
    return RunSpec.model_validate(body | sections)


def step_event(story: Story, run_id: str, step: int, *, missing: float, seed: int) -> Event:
    """Return a training step; a share of its rollouts has no grade."""
    rng = random.Random(seed)
    rows = tuple(
        rollout(
            env,
            task,
            passed=None if rng.random() < missing else rng.random() < 0.5,
            decoding="train",
            split="train",
            step=step,
            sample=sample,
        )
        for env in ENVS
        for task in range(TASKS)
        for sample in range(SAMPLES)
    )
    reward = READ["reward/avg_raw_reward"] + rng.gauss(0.0, 0.05)
    others = {f"metric/{number}": rng.random() for number in range(NUM_METRICS - len(READ))}
    metrics = {**READ, "reward/avg_raw_reward": reward, **others}
    return StepCompleted(**story.place(run_id, step), metrics=metrics, outcomes=rows)


def eval_event(story: Story, run_id: str, step: int, *, seed: int) -> Event:
    """Return an evaluation."""
    rng = random.Random(seed)
    rows = tuple(
        rollout(env, task, passed=rng.random() < 0.5, step=step)
        for env in ENVS
        for task in range(EVAL_TASKS)
    )
    return EvalCompleted(
        **story.place(run_id, step),
        decoding="sampled",
        temperature=1.0,
        n_samples_per_prompt=1,
        pass_threshold=1.0,
        metrics={},
        outcomes=rows,
        duration_s=5.0,
    )


def measure(story: Story, steps: int) -> dict[str, Times]:
    """Report the same steps and evaluations in all runs in turn; milliseconds of each batch."""
    runs = {
        "off": (story.running(spec(OFF, steps + 1)), 0.0),
        "on": (story.running(spec({}, steps + 1)), 0.0),
        "on, rollouts without a grade": (story.running(spec({}, steps + 1)), 0.05),
    }
    times: dict[str, Times] = {name: {"step": [], "evaluation": []} for name in runs}
    for step in range(1, steps + 1):
        order = sorted(runs, key=lambda name: random.Random(f"{name}{step}").random())
        for name in order:
            run_id, missing = runs[name]
            event = step_event(story, run_id, step, missing=missing, seed=step)
            times[name]["step"].append(_push(story, run_id, event))
        for name in order if step % EVAL_EVERY == 0 else ():
            run_id = runs[name][0]
            event = eval_event(story, run_id, step, seed=step)
            times[name]["evaluation"].append(_push(story, run_id, event))
    return times


def _push(story: Story, run_id: str, event: Event) -> float:
    began = time.perf_counter()
    story.push(run_id, event)
    return 1000.0 * (time.perf_counter() - began)


def main() -> None:
    """Measure, print the medians and their ratios, and write them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=400)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as folder:
        Path(folder).chmod(0o755)  # the server's account has to enter it
        with postgres(Path(folder)) as server:
            migrate(server.url())
            database = Database(server.url())
            story = Story(database)
            story.prepare()
            times = measure(story, steps)
            database.close()
    facts: dict[str, Any] = {"steps": steps, "cores": os.cpu_count()}
    for name, kinds in times.items():
        for kind, values in kinds.items():
            median = statistics.median(values)
            base = statistics.median(times["off"][kind])
            facts.setdefault(kind, {})[name] = {
                "median_ms": round(median, 2),
                "p95_ms": round(sorted(values)[int(0.95 * len(values))], 2),
                "ratio": round(median / base, 3),
            }
            print(f"{kind:<12}{name:<32}{median:8.1f} ms{median / base:8.2f}")
    RESULT.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
