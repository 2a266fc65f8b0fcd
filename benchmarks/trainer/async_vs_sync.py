"""Asynchronous against synchronous training where tools are slow: trajectories/s and final pass@1.

    python benchmarks/trainer/async_vs_sync.py speed [--runs 3] [--steps 8]
    python benchmarks/trainer/async_vs_sync.py final [--runs 3] [--asynchronous 2 4:token]

Every reset, tool call and verification waits as long as a lognormal distribution says, median 0.5 s
and 99th percentile 10 s, the same for the same rollout of both. The spec is the demo's, but for
`schedule.max_staleness_steps` and room for `--concurrent` rollouts at once, which both have. Each
of `--asynchronous` is such a bound, and after a colon the off-policy correction, if any.

`speed` alternates short runs. Trajectories/s are those learned from, per second of training steps
(evaluations apart). `final` is about whole runs, of the demo's length: pass@1 of their last step on
the same held-out tasks, compared by the paired test of every verdict. Time does not count there,
and the synchronous runs wait for no tools: with no deadline near, waiting changes only when a step
ends. Each part writes its share of `benchmarks/results/async_vs_sync.json`, which also has the
paired pass@1 after the few steps of `speed`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import yaml

from hillclimb.protocol.events import EVENTS, EvalCompleted, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.stats.pass_rate import count_tasks, pass_rate
from hillclimb.stats.verdicts.compare import compare_rows

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "async_vs_sync.json"
MEDIAN_S, P99_S = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Kind:
    """How groups reach the learner: synchronously, or ahead of it within a bound."""

    staleness: int
    correction: str | None = None
    """`algorithm.off_policy_correction.tis_ratio_type`."""

    @classmethod
    def of(cls, text: str) -> Kind:
        """Read `BOUND` or `BOUND:CORRECTION`."""
        bound, _, correction = text.partition(":")
        if correction not in ("", "token", "sequence") or int(bound) < 1:
            raise ValueError(text)
        return cls(int(bound), correction or None)

    @property
    def name(self) -> str:
        """`synchronous`, `staleness 2`, `staleness 2, token`."""
        if not self.staleness:
            return "synchronous"
        return f"staleness {self.staleness}" + (f", {self.correction}" if self.correction else "")


SYNCHRONOUS = Kind(0)


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    seed: int
    trajectories_per_s: float
    training_s: float
    mean_staleness: float
    max_staleness: float
    pass_at_1: dict[str, float]


@dataclass(frozen=True, slots=True)
class Settings:
    """What both kinds of run share."""

    steps: int
    concurrent: int
    eval_tasks_per_env: int
    is_final: bool


def run(
    settings: Settings, kind: Kind, *, seed: int, keep: Path | None = None
) -> tuple[Result, dict[str, Any]]:
    """Train once, without the service; also return the last evaluation's rows by decoding."""
    spec = _spec(settings, kind, seed)
    lines = _kept(spec, keep) or _trained(spec, keep)
    events = [EVENTS.validate_json(line) for line in lines]
    steps = [event for event in events if isinstance(event, StepCompleted)]
    evals = {event.decoding: event.outcomes for event in events if isinstance(event, EvalCompleted)}
    seconds = sum(step.metrics["timing/step"] for step in steps)
    result = Result(
        seed=seed,
        trajectories_per_s=sum(len(step.outcomes) for step in steps) / seconds,
        training_s=seconds,
        mean_staleness=sum(s.metrics["async/staleness_mean"] for s in steps) / len(steps),
        max_staleness=max(s.metrics["async/staleness_max"] for s in steps),
        pass_at_1={
            name: 100.0 * (pass_rate(count_tasks(rows, pass_threshold=1.0), k=1).value or 0.0)
            for name, rows in evals.items()
        },
    )
    return result, evals


def _spec(settings: Settings, kind: Kind, seed: int) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    spec["data"]["eval_tasks_per_env"] = settings.eval_tasks_per_env
    waits = {"faults": {"latency_s": MEDIAN_S, "latency_p99_s": P99_S}}
    spec["environment"] = {
        **({} if settings.is_final and kind == SYNCHRONOUS else waits),
        "call_timeout_s": 200.0, "trajectory_timeout_s": 600.0,
        "max_concurrent_rollouts": settings.concurrent,
    }  # fmt: skip
    spec["schedule"] |= {
        "total_steps": settings.steps, "seed": seed, "max_staleness_steps": kind.staleness,
    }  # fmt: skip
    if kind.correction:
        spec["algorithm"] = {"off_policy_correction": {"tis_ratio_type": kind.correction}}
    spec["eval"] |= {"before_training": False, "interval": 0}
    return spec


def _trained(spec: dict[str, Any], keep: Path | None) -> list[bytes]:
    """Return the lines of the events of a new run."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-bench-") as root:
        path, run_dir = Path(root) / "spec.json", Path(root) / "runs" / "run_bench"
        path.write_text(json.dumps(spec))
        command = ["-m", "trainer", "run", "--spec", str(path), "--run-dir", str(run_dir)]
        done = subprocess.run(
            [str(ROOT / ".venv-trainer" / "bin" / "python"), *command, "--attempt", "1"],
            check=False, capture_output=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        if done.returncode:
            raise RuntimeError(f"the trainer left with {done.returncode}: {done.stderr[-4000:]}")
        events = (run_dir / "attempt-1" / "events.jsonl").read_bytes()
    if keep is not None:
        _place(spec, keep).write_bytes(events)
    return events.splitlines()


def _kept(spec: dict[str, Any], keep: Path | None) -> list[bytes] | None:
    """Return the lines of a finished run of the same spec, if there was one."""
    place = None if keep is None else _place(spec, keep)
    return place.read_bytes().splitlines() if place is not None and place.exists() else None


def _place(spec: dict[str, Any], keep: Path) -> Path:
    digest = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
    return keep / f"{digest[:16]}.jsonl"


def main() -> None:
    """Alternate both, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("part", choices=("speed", "final"))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--steps", type=int, help="default: 8, and 30 for `final`")
    parser.add_argument("--asynchronous", type=Kind.of, nargs="+", default=[Kind(2)])
    parser.add_argument("--at-once", type=int, default=2, help="runs of `final` side by side")
    parser.add_argument("--concurrent", type=int, default=512)
    parser.add_argument("--eval-tasks", type=int, default=60)
    parser.add_argument(
        "--keep", type=Path, help="a folder for the events of finished `final` runs, not run again"
    )
    options = parser.parse_args()
    is_final = options.part == "final"
    settings = Settings(
        options.steps or (30 if is_final else 8), options.concurrent, options.eval_tasks, is_final
    )  # fmt: skip
    kinds = [SYNCHRONOUS, *options.asynchronous]
    found: dict[str, list[Result]] = {kind.name: [] for kind in kinds}
    rows: dict[str, dict[str, list[OutcomeRow]]] = {kind.name: {} for kind in kinds}

    def one(job: tuple[int, Kind]) -> None:
        seed, kind = job
        result, evals = run(settings, kind, seed=seed, keep=options.keep if is_final else None)
        found[kind.name].append(result)
        print(kind.name, asdict(result), flush=True)
        for decoding, outcomes in evals.items():
            rows[kind.name].setdefault(decoding, []).extend(_of_run(outcomes, seed))

    jobs = [(seed, kind) for seed in range(options.runs) for kind in kinds]
    # Of `final` no time counts, and asynchronous runs wait most of theirs.
    with ThreadPoolExecutor(options.at_once if is_final else 1) as side_by_side:
        list(side_by_side.map(one, jobs))
    for results in found.values():
        results.sort(key=lambda result: result.seed)
    compared = {
        kind.name: _paired(rows[SYNCHRONOUS.name], rows[kind.name]) for kind in kinds[1:]
    }  # fmt: skip
    share: dict[str, Any] = {
        "settings": asdict(settings), "paired": compared,
        "runs": {name: [asdict(result) for result in results] for name, results in found.items()},
    }  # fmt: skip
    if not is_final:
        speeds = {
            name: median(result.trajectories_per_s for result in results)
            for name, results in found.items()
        }
        share["ratio"] = {
            kind.name: speeds[kind.name] / speeds[SYNCHRONOUS.name] for kind in kinds[1:]
        }
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(document | {options.part: share}, indent=2) + "\n")
    print(json.dumps({key: share.get(key) for key in ("ratio", "paired")}))


def _paired(
    synchronous: dict[str, list[OutcomeRow]], asynchronous: dict[str, list[OutcomeRow]]
) -> dict[str, Any]:
    """Asynchronous against synchronous, task by task."""
    return {
        decoding: {
            "delta": 100.0 * (change.delta or 0.0),
            "p_value": change.p_value,
            "n": change.num_paired,
            "verdict": change.verdict.value,
        }
        for decoding, before in synchronous.items()
        for change in [compare_rows(before, asynchronous[decoding], pass_threshold=1.0).overall]
    }


def _of_run(outcomes: tuple[OutcomeRow, ...], seed: int) -> list[OutcomeRow]:
    """Rows whose tasks are told apart by run: a pair is one task of one seed."""
    return [row.model_copy(update={"task_key": f"{row.task_key}/{seed}"}) for row in outcomes]


if __name__ == "__main__":
    main()
