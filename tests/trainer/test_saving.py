"""Saves go on beside training, one at a time, and nothing that fails in them is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainer.short_run import ShortRun
from trainer.checkpoints import Position, find_latest
from trainer.contract.events import CheckpointSaved, RunWarning, StepCompleted
from trainer.errors import LearnerError, TrainerError
from trainer.saving import Saver
from trainer.stores.base import StoreError


class SlowLearner:
    """Writes one file when the gate opens; `fault` is raised instead."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.gate = threading.Event()
        self.fault = fault

    def begin_save(self, directory: Path) -> Callable[[], None]:
        def finish() -> None:
            assert self.gate.wait(timeout=20.0)
            if self.fault:
                raise self.fault
            (directory / "state").write_bytes(b"state")

        return finish


def at(step: int, *, final: bool = False) -> Position:
    return Position(step=step, sampler={}, stream={}, evaluated_step=None, final=final)


def saver_of(run: ShortRun, learner: SlowLearner) -> Saver:
    saver = run.build()._parts.saver
    saver.learner = learner  # type: ignore[assignment]
    return saver


async def test_training_goes_on_while_files_are_written(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner()
    saver = saver_of(run, learner)
    await saver.save(at(2))
    assert saver.saved_step is None
    assert find_latest(run.store, run.run_id) is None
    learner.gate.set()
    await saver.drain()
    assert saver.saved_step == 2
    assert find_latest(run.store, run.run_id) is not None
    run.journal.close(drain_s=0.0)
    assert [event.step for event in run.events(CheckpointSaved)] == [2]


async def test_the_final_checkpoint_is_waited_for(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner()
    saver = saver_of(run, learner)
    learner.gate.set()
    await saver.save(at(4, final=True))
    assert saver.saved_step == 4
    run.journal.abandon()


async def test_what_failed_beside_training_is_raised_by_the_next_save(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner(LearnerError("no gradient, no state"))
    saver = saver_of(run, learner)
    learner.gate.set()
    await saver.save(at(2))
    with pytest.raises(LearnerError, match="no state"):
        await saver.save(at(4))
    run.journal.abandon()


async def test_a_store_that_fails_is_a_warning_until_the_end(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner(StoreError("no answer"))
    saver = saver_of(run, learner)
    learner.gate.set()
    await saver.save(at(2))
    await saver.drain()
    assert saver.saved_step is None
    with pytest.raises(TrainerError, match="the last checkpoint is not stored"):
        await saver.save(at(4, final=True))
    run.journal.close(drain_s=0.0)
    assert [event.code for event in run.events(RunWarning)] == ["checkpoint_not_saved"]


async def test_a_save_under_way_is_complete_when_the_trainer_is_closed(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, schedule={"total_steps": 2}, checkpoints={"interval": 1})
    await run.train()
    assert [event.step for event in run.events(CheckpointSaved)] == [1, 2]
    assert len(run.events(StepCompleted)) == 2


async def test_a_save_that_cannot_write_says_why(tmp_path: Path) -> None:
    run = ShortRun(tmp_path)
    rank = run.build()._parts.crew.learner.rank
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "learner").write_text("a file where a directory should be")
    with pytest.raises(OSError, match="learner"):
        rank.save(tmp_path / "taken")
    run.journal.abandon()
