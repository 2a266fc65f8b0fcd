"""A run whose workers are processes of their own, and what becomes of it when they die."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from hillclimb.protocol.events import (
    CheckpointSaved,
    Event,
    PhaseStarted,
    RunWarning,
    StepCompleted,
    TrainerStarted,
)
from hillclimb.protocol.outcomes import StopReason
from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues
from tests.trainer.fixtures.scripted import CountingProvider, solved_by_done
from tests.trainer.fixtures.short_run import ShortRun
from trainer.engines.canary import canary_gap
from trainer.errors import CheckpointError, LearnerError, PlacementError
from trainer.jobs.train.loop import Trainer

SHORT_S = 3.0
"""A rollout's time: less than a process of Ray's takes to start."""


def workers(name: str) -> list[psutil.Process]:
    """Processes of Ray under this one that hold an actor of the class."""
    return [
        each
        for each in psutil.Process().children(recursive=True)
        if each.status() != psutil.STATUS_ZOMBIE and each.name().startswith(f"ray::{name}")
    ]


def kill_one(name: str) -> None:
    os.kill(workers(name)[0].pid, signal.SIGKILL)


def a_run(root: Path, *, steps: int = 4, ranks: int = 2) -> ShortRun:
    return ShortRun(
        root,
        environment={"max_turns": 2, "call_timeout_s": 1.0, "trajectory_timeout_s": SHORT_S},
        placement={"type": "ray", "learner_ranks": ranks},
        schedule={"total_steps": steps},
        eval={"before_training": False, "interval": 0},
    )


def states_of(run: ShortRun, step: int) -> set[str]:
    """States of the rollouts in the file of the learner's values of a step, of both ranks."""
    key = f"runs/{run.run_id}/attempt-1/token-values/step-{step:06d}-train-train.jsonl.gz"
    lines = gzip.decompress(run.store.get(key)).splitlines()
    return {StoredTokenValues.model_validate_json(line).state for line in lines}


async def with_events(
    trainer: Trainer, run: ShortRun, at: dict[int, Callable[[], None]], *, phase: str = "rollout"
) -> None:
    """Train, and let things happen when a step begins to roll out, or another phase."""
    seen: set[int] = set()
    emit = run.journal.emit

    def watching(event: Event) -> None:
        emit(event)
        begins = isinstance(event, PhaseStarted) and event.phase == phase
        if begins and event.step in at and event.step not in seen:
            seen.add(event.step)
            asyncio.get_running_loop().call_later(0.05, at[event.step])

    run.journal.emit = watching  # type: ignore[method-assign]
    await run.finish(trainer)


@pytest.mark.long
async def test_a_run_goes_on_without_engine_and_rollout_worker_and_ends_without_a_rank(
    tmp_path: Path,
) -> None:
    """What rolls out is started again; a rank ends the attempt, and the next goes on."""
    run = a_run(tmp_path, steps=6)
    trainer = run.build(provider=CountingProvider(solved_by_done))
    assert [len(workers(name)) for name in ("Engine", "Learner", "Rollout")] == [1, 2, 1]
    kills = {2: "EngineActor", 3: "RolloutActor", 6: "LearnerActor"}
    with pytest.raises(LearnerError, match="a rank of the learner died"):
        await with_events(
            trainer, run, {step: partial(kill_one, name) for step, name in kills.items()}
        )
    assert workers("") == []
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [1, 2, 3, 4, 5]
    assert all(len(event.outcomes) == 16 for event in steps)
    rows = [row for event in steps for row in event.outcomes]
    assert all(row.score is not None for row in rows)
    assert all(row.stop_reason is not StopReason.POLICY_DEADLINE for row in rows), (
        "the wait for the engine was no time of the policy's"
    )
    (started,) = run.events(TrainerStarted)
    assert started.engine == "torch"
    phases = {"imports", "model", "tasks", "ray", "weights", "engines", "environments"}
    took = {each.phase: each.seconds for each in started.startup}
    assert set(took) == phases
    assert took["ray"] > 0.0
    assert "learned" in set().union(*(states_of(run, step) for step in (1, 2, 3)))
    said = [event.message for event in run.events(RunWarning) if event.code == "worker_restarted"]
    assert any(message.startswith("engine 0 died") for message in said)
    assert any(message.startswith("rollout worker 0 died") for message in said)
    saved = run.events(CheckpointSaved)[-1]
    assert saved.step == 4
    inline = ShortRun(
        tmp_path, schedule={"total_steps": 6}, eval={"before_training": False, "interval": 0}
    )
    await inline.train(2, resume_from=f"runs/{run.run_id}/{saved.path}")
    assert [event.step for event in inline.events(StepCompleted, 2)] == [5, 6]


@pytest.mark.long
async def test_an_engine_that_dies_in_the_last_evaluation_is_told_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, steps=1, ranks=1)
    checked: list[float] = []

    async def counting(*args: Any, **kwargs: Any) -> float:
        checked.append(await canary_gap(*args, **kwargs))
        return checked[-1]

    monkeypatch.setattr("trainer.engines.canary.canary_gap", counting)
    trainer = run.build(provider=CountingProvider(solved_by_done))
    await with_events(trainer, run, {1: partial(kill_one, "EngineActor")}, phase="eval")
    said = [event.message for event in run.events(RunWarning) if event.code == "worker_restarted"]
    assert len(said) == 1
    assert said[0].startswith("engine 0 died")
    # At the start, after the step, and after the evaluation.
    assert len(checked) == 3


@pytest.mark.long
async def test_workers_that_do_not_start_are_no_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.workers.ray.workers.START_S", 0.2)
    with pytest.raises(PlacementError, match=r"did not start in 0\.2 s"):
        a_run(tmp_path).build(provider=CountingProvider(solved_by_done))
    assert workers("") == []


@pytest.mark.long
async def test_workers_end_with_an_attempt_that_cannot_begin(tmp_path: Path) -> None:
    """The ranks cannot load what an adapter left."""
    other = ShortRun(
        tmp_path / "other",
        learner={"lora": {}},
        schedule={"total_steps": 1},
        eval={"before_training": False, "interval": 0},
    )
    await other.train()
    [saved] = other.events(CheckpointSaved)
    run = a_run(tmp_path, ranks=1)
    run.store = other.store
    with pytest.raises(CheckpointError, match="cannot load"):
        run.build(resume_from=f"runs/{other.run_id}/{saved.path}")
    assert workers("") == []
    assert not (run.dir().path / "resume").exists(), "as large as the model and its optimizer"


async def test_a_checkpoint_that_is_not_there_is_told_before_a_worker_is_placed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[object] = []
    monkeypatch.setattr("trainer.workers.ray.workers.ray_workers", placed.append)
    run = a_run(tmp_path, ranks=1)
    with pytest.raises(CheckpointError, match="not a complete checkpoint"):
        run.build(resume_from=f"runs/{run.run_id}/checkpoints/global_step_9")
    assert placed == []
