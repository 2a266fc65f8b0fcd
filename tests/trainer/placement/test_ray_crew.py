"""A run whose workers are processes of their own, and what becomes of it when they die."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

pytest.importorskip("ray", reason="Ray is not installed here")

from tests.trainer.scripted import CountingEnv, CountingProvider
from tests.trainer.short_run import ShortRun
from trainer.contract.events import (
    CheckpointSaved,
    RunWarning,
    StepCompleted,
    TrainerStarted,
)
from trainer.errors import CheckpointError, LearnerError
from trainer.loop import Trainer


def solved_by_done(_: int) -> CountingEnv:
    return CountingEnv(goal=0)


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
        placement={"type": "ray", "learner_ranks": ranks},
        schedule={"total_steps": steps},
        eval={"before_training": False, "interval": 0},
    )


async def with_events(trainer: Trainer, run: ShortRun, at: dict[int, Callable[[], None]]) -> None:
    """Train, and let things happen when a step begins to roll out."""
    seen: set[int] = set()
    emit = run.journal.emit

    def watching(kind: type, *, step: int, **fields: object) -> None:
        emit(kind, step=step, **fields)  # type: ignore[arg-type]
        if step in at and step not in seen and fields.get("phase") == "rollout":
            seen.add(step)
            asyncio.get_running_loop().call_later(0.05, at[step])

    run.journal.emit = watching  # type: ignore[method-assign, assignment]
    await run.finish(trainer)


async def test_a_run_goes_on_when_engine_and_rollout_worker_die(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    trainer = run.build(provider=CountingProvider(solved_by_done))
    assert [len(workers(name)) for name in ("Engine", "Learner", "Rollout")] == [1, 2, 1]
    await with_events(
        trainer,
        run,
        {2: lambda: kill_one("EngineWorker"), 3: lambda: kill_one("RolloutWorker")},
    )
    steps = run.events(StepCompleted)
    assert [event.step for event in steps] == [1, 2, 3, 4]
    assert all(len(event.outcomes) == 16 for event in steps)
    assert all(row.score is not None for event in steps for row in event.outcomes)
    assert run.events(TrainerStarted)[0].engine == "torch"
    said = [event.message for event in run.events(RunWarning) if event.code == "worker_restarted"]
    assert any(message.startswith("engine 0 died") for message in said)
    assert any(message.startswith("rollout worker 0 died") for message in said)
    assert run.events(CheckpointSaved)[-1].final
    assert workers("") == []


async def test_a_dead_rank_ends_the_attempt_and_the_next_goes_on_from_its_checkpoint(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path)
    trainer = run.build(provider=CountingProvider(solved_by_done))
    with pytest.raises(LearnerError, match="a rank of the learner died"):
        await with_events(trainer, run, {4: lambda: kill_one("LearnerWorker")})
    assert workers("") == []
    saved = run.events(CheckpointSaved)[-1]
    assert saved.step == 2
    inline = ShortRun(
        tmp_path, schedule={"total_steps": 4}, eval={"before_training": False, "interval": 0}
    )
    await inline.train(2, resume_from=f"runs/{run.run_id}/{saved.path}")
    assert [event.step for event in inline.events(StepCompleted, 2)] == [3, 4]


async def test_workers_end_with_an_attempt_that_cannot_begin_or_is_cancelled(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, ranks=1)
    with pytest.raises(CheckpointError):
        run.build(resume_from=f"runs/{run.run_id}/checkpoints/global_step_9")
    assert workers("") == []
    trainer = run.build(attempt=2, provider=CountingProvider(solved_by_done))
    closing = asyncio.create_task(run.finish_without_training(trainer))
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    run.journal.close(drain_s=0.0)
    assert workers("") == []
