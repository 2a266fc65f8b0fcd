"""A deterministic run killed in the middle of a step and resumed equals the one that was not.

Real processes, the shipped model, real apps; compared are the files that they leave, bit for bit.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.events import EVENTS, EvalCompleted, Event, StepCompleted, TrainerStarted
from hillclimb.protocol.rundir import AttemptDir
from tests.trainer.fixtures import crashing
from tests.trainer.fixtures.forked import run_forked
from trainer.__main__ import main
from trainer.jobs.train.checkpoints import complete_checkpoints, read_saved
from trainer.rollouts.records.dump import read_trajectories

pytestmark = pytest.mark.long
STEPS = 5
MEASURED = ("timing/", "trainer/tokens_per_second", "policy/tokens_per_second", "policy/peak_mem")
"""Beginnings of the metrics that a clock or the machine gives."""
CLOCKED = ("trajectory_time", "call_latency")
"""Parts of the names of those that belong to an environment."""
PLAIN: Mapping[str, Any] = {}
RICH: Mapping[str, Any] = {
    "algorithm": {"use_kl_loss": True, "dynamic_sampling": {"type": "filter"}},
    "data": {"curriculum": {"interval": 1, "half_life": 2.0}},
}


def a_spec(sections: Mapping[str, Any], *, seed: int = 0) -> dict[str, Any]:
    """A run of the shipped model in which a step takes a second."""
    base: dict[str, Any] = {
        "data": {
            "env_keys": ["booking", "github"],
            "train_tasks_per_env": 60,
            "eval_tasks_per_env": 2,
        },
        # With fewer, most groups have nothing to teach, and `filter` draws many more.
        "environment": {"max_turns": 4},
        "rollout": {"n_samples_per_prompt": 4},
        "engine": {"type": "torch"},
        "placement": {"type": "inline"},
        "optimizer": {"lr": 1e-3},
        "schedule": {
            "total_steps": STEPS,
            "train_batch_size": 4,
            "mini_batch_size": 2,
            "seed": seed,
        },
        "eval": {"interval": 2},
        "checkpoints": {"interval": 2, "keep_last": 9},
    }
    for name, section in sections.items():
        base[name] = base.get(name, {}) | section
    return {"name": "exact", "deterministic": True, **base}


@dataclass(frozen=True)
class Trained:
    """What the attempts of one run have left."""

    root: Path

    @property
    def run_dir(self) -> Path:
        return self.root / "runs" / "run_1"

    @property
    def store(self) -> DiskStore:
        return DiskStore(self.root / "blobs")

    def attempts(self) -> list[AttemptDir]:
        numbers = sorted(int(path.name.split("-")[1]) for path in self.run_dir.glob("attempt-*"))
        return [AttemptDir(self.run_dir, number) for number in numbers]

    def events(self) -> Iterator[Event]:
        for attempt in self.attempts():
            # A killed process may leave half a line.
            for line in attempt.events.read_bytes().split(b"\n")[:-1]:
                yield EVENTS.validate_json(line)

    def checkpoints(self) -> dict[int, str]:
        """Keys of the checkpoints by step; of two attempts, the later one's."""
        keys = complete_checkpoints(self.store, "run_1")
        return {read_saved(self.store, key).manifest.step: key for key in keys}


def train(
    root: Path,
    spec: Mapping[str, Any],
    *,
    crash: tuple[str, int] | None = None,
    run_to_end: Callable[[Sequence[str]], subprocess.CompletedProcess[str]] | None = None,
) -> Trained:
    """Train to the end; with `crash`, in two attempts, the first killed there."""
    root.mkdir()
    (root / "spec.json").write_text(json.dumps(spec))
    given = ["run", "--spec", str(root / "spec.json"), "--run-dir", str(root / "runs" / "run_1")]
    if crash:
        place, step = crash
        killed = run_forked(crashing.run, [place, str(step), *given])
        assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
        given += ["--attempt", "2", "--resume-from", "latest"]
    done = run_to_end(given) if run_to_end else run_forked(main, given)
    assert done.returncode == 0, done.stderr[-2000:]
    return Trained(root)


def by_the_command(given: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """As a runner starts it, and with a hash seed of its own, which forks of one process share."""
    command = [sys.executable, "-m", "trainer", *given]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rollouts_of(run: Trained) -> dict[str, list[Any]]:
    """Every rollout of every wave, as its file has it; nothing but times and names of attempts."""
    rollout_service: dict[str, list[Any]] = {}
    for attempt in run.attempts():
        for path in attempt.trajectories.glob("*.jsonl.gz"):
            rollout_service[path.name] = [
                {key: value for key, value in record.items() if key != "duration_s"}
                | {"rollout_id": str(record["rollout_id"]).partition("/")[2]}
                for record in read_trajectories(path)
            ]
    return rollout_service


def measured_of(run: Trained) -> dict[tuple[str, int, str], dict[str, float]]:
    """Metrics of every step and evaluation."""
    found: dict[tuple[str, int, str], dict[str, float]] = {}
    for event in run.events():
        if isinstance(event, StepCompleted | EvalCompleted):
            decoding = event.decoding if isinstance(event, EvalCompleted) else ""
            found[event.type, event.step, decoding] = {
                name: value
                for name, value in event.metrics.items()
                if not name.startswith(MEASURED) and not any(part in name for part in CLOCKED)
            }
    return found


def said_of(run: Trained) -> dict[tuple[str, int], Any]:
    """Curriculum and warnings: what the run concluded from what it saw."""
    kinds = ("curriculum.reweighted", "run.warning")
    return {
        (event.type, event.step): event.model_dump(exclude={"trainer_seq", "at", "attempt"})
        for event in run.events()
        if event.type in kinds
    }


def policies_of(run: Trained) -> dict[tuple[int, str], bytes]:
    """Every file of every exported policy."""
    return {
        (step, file.path): run.store.get(f"{key}/{file.path}")
        for step, key in run.checkpoints().items()
        for file in read_saved(run.store, key).manifest.files
        if file.path.startswith("policy/")
    }


def orders_of(run: Trained) -> dict[int, Any]:
    """Where the order of tasks stands at each checkpoint: sampler, curriculum, tasks drawn."""
    manifests = {
        step: read_saved(run.store, key).manifest for step, key in run.checkpoints().items()
    }
    return {
        step: (each.sampler, each.buffer, each.evaluated_step) for step, each in manifests.items()
    }


def learners_of(run: Trained) -> dict[tuple[int, str], torch.Tensor]:
    """Weights of record, optimizer, random state and counters of every checkpoint, as bytes."""
    found: dict[tuple[int, str], torch.Tensor] = {}
    for step, key in run.checkpoints().items():
        folder = run.root / "blobs" / key / "learner"
        for name, tensor in json.loads((folder / "learner.json").read_text())["tensors"].items():
            (chunk,) = tensor["chunks"]
            data = (folder / chunk["file"]).read_bytes()[chunk["first_byte"] :]
            content = bytearray(data[: chunk["num_bytes"]])
            found[step, name] = torch.frombuffer(content, dtype=torch.uint8)
    return found


SEEN: tuple[Callable[[Trained], Mapping[Any, Any]], ...] = (
    rollouts_of,
    measured_of,
    said_of,
    policies_of,
    orders_of,
    learners_of,
)


def differences(one: Trained, other: Trained) -> list[str]:
    """Where two runs are not the same to the last bit."""
    found: list[str] = []
    for see in SEEN:
        here, there = see(one), see(other)
        found += [f"{see.__name__}: only in one: {key}" for key in here.keys() ^ there.keys()]
        for key in here.keys() & there.keys():
            a, b = here[key], there[key]
            same = torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
            found += [] if same else [f"{see.__name__}: {key}"]
    return found


def resumed_from(run: Trained) -> int | None:
    """The step that the last attempt began with."""
    started = [event for event in run.events() if isinstance(event, TrainerStarted)]
    return started[-1].resumed_from_step


@dataclass(frozen=True)
class Runs:
    plain: Trained
    plain_crashed: Trained
    rich: Trained
    rich_crashed: Trained
    other_seed: Trained


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """All of them, two processes at a time.

    Of each pair that is compared, one part is `by_the_command`: a whole run, and a resumed attempt.
    """
    root = tmp_path_factory.mktemp("runs")
    plain, rich = a_spec(PLAIN), a_spec(RICH)
    with ThreadPoolExecutor(2) as pool:
        begun = {
            "rich_crashed": pool.submit(train, root / "b", rich, crash=("updates", 4)),
            "plain_crashed": pool.submit(
                train, root / "a", plain, crash=("rollouts", 5), run_to_end=by_the_command
            ),
            "rich": pool.submit(train, root / "rich", rich, run_to_end=by_the_command),
            "plain": pool.submit(train, root / "plain", plain),
            "other_seed": pool.submit(train, root / "other", a_spec(PLAIN, seed=1)),
        }
    return Runs(**{name: each.result() for name, each in begun.items()})


def test_a_run_is_worth_comparing(runs: Runs) -> None:
    """It learns in most steps, evaluates, and its checkpoints hold what resuming needs."""
    steps = [event for event in runs.plain.events() if isinstance(event, StepCompleted)]
    assert [event.step for event in steps] == list(range(1, STEPS + 1))
    assert sum(event.metrics.get("policy/grad_norm", 0.0) > 0.0 for event in steps) >= 3
    assert list(runs.plain.checkpoints()) == [2, 4, 5]
    names = {name.partition("/")[0] for _, name in learners_of(runs.plain)}
    assert names == {"weights", "optimizer", "torch_rng", "counters"}


def test_a_crash_right_after_a_checkpoint_leaves_no_trace(runs: Runs) -> None:
    """Killed among the rollouts of step 5, which is then made whole."""
    assert resumed_from(runs.plain_crashed) == 4
    assert differences(runs.plain, runs.plain_crashed) == []


def test_a_crash_between_checkpoints_leaves_no_trace_with_all_that_has_a_memory(
    runs: Runs,
) -> None:
    """Killed between the updates of step 4; step 3 is made again before it."""
    assert any(kind == "curriculum.reweighted" for kind, _ in said_of(runs.rich))
    steps = [event.metrics for event in runs.rich.events() if isinstance(event, StepCompleted)]
    assert min(metrics["dynamic_sampling/keep_rate"] for metrics in steps) < 1.0
    assert any(metrics.get("loss/avg_kl", 0.0) > 0.0 for metrics in steps)
    assert resumed_from(runs.rich_crashed) == 2
    assert differences(runs.rich, runs.rich_crashed) == []


def test_another_seed_is_another_run_in_everything(runs: Runs) -> None:
    """So the comparison can fail, in each of its parts."""
    found = differences(runs.plain, runs.other_seed)
    parts = {line.partition(":")[0] for line in found}
    assert parts >= {"rollouts_of", "measured_of", "policies_of", "learners_of"}
