"""Saves go on beside training, one at a time, and nothing that fails in them is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.environment.task import Task
from hillclimb.protocol.events import CheckpointDeleted, CheckpointSaved, RunWarning, StepCompleted
from tests.trainer.fixtures.short_run import ShortRun
from trainer.algo.sequences import Batch
from trainer.errors import EngineError, LearnerError, StepTimeout, StorageFull, TrainerError
from trainer.jobs import process
from trainer.jobs.train.checkpoints import Position, find_latest
from trainer.jobs.train.loop import Trainer
from trainer.jobs.train.saving import Saver
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.rollouts.worker import RolloutWorker


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
    return Position(step=step, sampler={}, buffer={}, evaluated_step=None, final=final)


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


async def test_the_wait_for_the_save_before_is_part_of_what_saving_took(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner()
    saver = saver_of(run, learner)
    await saver.save(at(2))
    saver.context.clock.take()
    threading.Timer(0.3, learner.gate.set).start()
    await saver.save(at(4))
    assert saver.context.clock.take()["timing/save_checkpoints"] >= 0.3
    await saver.drain()
    run.journal.abandon()


async def test_a_save_under_way_is_complete_when_the_trainer_is_closed(tmp_path: Path) -> None:
    run, learner = ShortRun(tmp_path), SlowLearner()
    trainer = run.build()
    saver = trainer._parts.saver
    saver.learner = learner  # type: ignore[assignment]
    await saver.save(at(2))
    closing = asyncio.create_task(trainer.close())
    threading.Timer(0.3, learner.gate.set).start()
    await closing
    assert saver.saved_step == 2
    run.journal.close(drain_s=0.0)
    assert [event.step for event in run.events(CheckpointSaved)] == [2]


async def test_a_deletion_that_is_cut_short_is_announced_and_finished_by_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, learner = ShortRun(tmp_path, checkpoints={"keep_last": 1}), SlowLearner()
    saver = saver_of(run, learner)
    learner.gate.set()
    delete = DiskStore.delete_prefix

    def away(store: DiskStore, prefix: str) -> int:
        if prefix.endswith("global_step_1/attempt-1"):
            raise StoreError("no answer")
        return delete(store, prefix)

    monkeypatch.setattr(DiskStore, "delete_prefix", away)
    for step in (1, 2):
        await saver.save(at(step))
        await saver.drain()
    deleted = [event.path for event in run.events(CheckpointDeleted)]
    assert deleted == ["checkpoints/global_step_1/attempt-1"]
    assert [event.code for event in run.events(RunWarning)] == ["checkpoint_not_deleted"]
    monkeypatch.undo()
    await saver.save(at(3))
    await saver.drain()
    run.journal.close(drain_s=0.0)
    deleted += [f"checkpoints/global_step_{step}/attempt-1" for step in (1, 2)]
    assert [event.path for event in run.events(CheckpointDeleted)] == deleted
    assert not run.store.list(f"runs/{run.run_id}/checkpoints/global_step_1")


def failing_learner(run: ShortRun, after: Callable[[], object]) -> Trainer:
    """A trainer whose learner dies in step 2, while the save of step 1 is under way."""
    trainer = run.build()
    learner = trainer._parts.workers.learner
    step = learner.step

    async def dying(batch: Batch) -> dict[str, float]:
        if trainer.step == 1:
            after()
            raise LearnerError("a rank of the learner died")
        return await step(batch)

    learner.step = dying  # type: ignore[method-assign]
    return trainer


def held_back(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Let no manifest into the store before the gate that is returned opens."""
    gate, put_if_absent = threading.Event(), DiskStore.put_if_absent

    def slow(store: DiskStore, key: str, data: bytes) -> bool:
        assert gate.wait(timeout=20.0)
        return put_if_absent(store, key, data)

    monkeypatch.setattr(DiskStore, "put_if_absent", slow)
    return gate


SAVES_OFTEN: dict[str, Any] = {
    "checkpoints": {"interval": 1},
    "eval": {"before_training": False, "interval": 0},
}


async def test_a_save_under_way_is_complete_and_announced_when_a_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the store takes longer than a trainer has to close."""
    monkeypatch.setattr(process, "CLOSE_S", 0.05)
    gate, run = held_back(monkeypatch), ShortRun(tmp_path, **SAVES_OFTEN)
    trainer = failing_learner(run, threading.Timer(0.5, gate.set).start)
    with pytest.raises(LearnerError, match="a rank of the learner died"):
        await trainer.train()
    await process._close(trainer)
    run.journal.close(drain_s=0.0)
    assert [event.step for event in run.events(StepCompleted)] == [1]
    assert [event.step for event in run.events(CheckpointSaved)] == [1]
    assert find_latest(run.store, run.run_id) is not None


async def test_a_failed_run_whose_store_hangs_ends_for_its_own_reason_and_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, run = held_back(monkeypatch), ShortRun(tmp_path, **SAVES_OFTEN)
    trainer = failing_learner(run, lambda: None)
    watchdog = trainer._parts.watchdog
    drain = trainer._parts.saver.drain

    async def hurried() -> None:
        if run.journal.phase == "train" and watchdog._deadline is not None:
            watchdog._deadline.reschedule(asyncio.get_running_loop().time() + 0.05)
        await drain()

    monkeypatch.setattr(Saver, "drain", lambda _: hurried())
    with pytest.raises(LearnerError, match="a rank of the learner died") as caught:
        await trainer.train()
    gate.set()
    assert isinstance(caught.value.__cause__, StepTimeout)
    assert process._exit_code(caught.value) == process.EXIT_HUNG
    monkeypatch.undo()
    await run.finish_without_training(trainer)


@pytest.mark.parametrize(
    ("error", "saved"),
    [(EngineError("the engine died"), [1]), (StorageFull("no space left"), [])],
)
async def test_the_last_step_is_saved_where_a_run_fails_between_two_updates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: TrainerError, saved: list[int]
) -> None:
    sections = SAVES_OFTEN | {"checkpoints": {"interval": 100}}
    run, roll = ShortRun(tmp_path, **sections), RolloutWorker.run_rollout

    async def failing(
        self: RolloutWorker, task: Task, sample_index: int, request: RolloutRequest
    ) -> Rollout:
        if request.step == 2:
            raise error
        return await roll(self, task, sample_index, request)

    monkeypatch.setattr(RolloutWorker, "run_rollout", failing)
    with pytest.raises(type(error), match=str(error)):
        await run.train()
    assert [event.step for event in run.events(CheckpointSaved)] == saved


async def test_a_save_that_cannot_write_says_why(tmp_path: Path) -> None:
    run = ShortRun(tmp_path)
    rank = run.build()._parts.workers.learner.rank
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "learner").write_text("a file where a directory should be")
    with pytest.raises(OSError, match="learner"):
        rank.save(tmp_path / "taken")
    run.journal.abandon()
