"""Steps and runs that take too long, each by hanging what the deadline bounds."""

from __future__ import annotations

import asyncio
import json
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

import trainer.attempt.watchdog as watchdog_module
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import PhaseStarted, StepCompleted
from hillclimb.protocol.rundir import ExitRecord
from tests.trainer.fixtures import hanging
from tests.trainer.fixtures.forked import run_forked
from tests.trainer.fixtures.hanging import HANGS
from tests.trainer.fixtures.scripted import CountingEnv, CountingProvider
from tests.trainer.fixtures.short_run import ShortRun, with_step_timeout
from tests.trainer.jobs.test_process import LENGTHS, a_spec
from trainer.attempt.watchdog import HUNG, Watchdog
from trainer.errors import RunTimeout, StepTimeout
from trainer.jobs.process import EXIT_HUNG
from trainer.jobs.train.checkpoints import find_latest, read_saved
from trainer.jobs.train.loop import Trainer
from trainer.learners.rank import LearnerRank

WAIT_S = 120.0
SHORT_S = 0.05


def a_run(root: Path, **sections: dict[str, Any]) -> ShortRun:
    merged: dict[str, dict[str, Any]] = {
        "environment": {"max_turns": 1},
        "eval": {"before_training": False, "interval": 0},
        "schedule": {"total_steps": 2},
        "checkpoints": {"interval": 100},
    }
    for name, section in sections.items():
        merged[name] = {**merged.get(name, {}), **section}
    return ShortRun(root, **merged)


class Hang:
    """Hangs for ever, and lets the step's deadline come at once: nobody has to wait for it."""

    def __init__(self, trainer: Trainer) -> None:
        self._watchdog = trainer._parts.watchdog
        self._loop = asyncio.get_running_loop()
        self.release = threading.Event()

    async def on_the_loop(self, *_: object) -> None:
        self._hurry()
        await asyncio.Event().wait()

    def in_a_thread(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._hurry)
        self.release.wait()

    def _hurry(self) -> None:
        deadline = self._watchdog._deadline
        assert deadline is not None
        deadline.reschedule(self._loop.time() + SHORT_S)


async def late(run: ShortRun, trainer: Trainer, hang: Hang) -> str:
    """How the training ends whose deadline comes while it hangs."""
    try:
        with pytest.raises(StepTimeout) as caught:
            await trainer.train()
    finally:
        hang.release.set()
        await run.finish_without_training(trainer)
    return str(caught.value)


def hanging_from(number: int, hangs: list[Hang]) -> CountingProvider:
    """Environments that hang in their reset, from the `number`-th on (from 0)."""

    class Hanging(CountingEnv):
        async def reset(self) -> Any:
            await hangs[0].on_the_loop()

    return CountingProvider(lambda n: Hanging(goal=0) if n >= number else CountingEnv(goal=0))


async def test_rollouts_that_hang_pause_the_run_with_its_last_step_saved(tmp_path: Path) -> None:
    run, hangs = a_run(tmp_path), list[Hang]()
    trainer = run.build(provider=hanging_from(16, hangs))
    hangs.append(Hang(trainer))
    message = await late(run, trainer, hangs[0])
    assert message == (
        "step 2 took longer than schedule.step_timeout_s (1500 s), in phase rollout: the rollouts"
        " did not end; the engine sampled no tokens"
    )
    assert [event.step for event in run.events(StepCompleted)] == [1]
    latest = find_latest(run.store, run.run_id)
    assert latest is not None
    assert "global_step_1/" in latest


async def test_a_learner_that_hangs_is_named_and_its_half_done_step_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    trainer = run.build()
    hang = Hang(trainer)
    monkeypatch.setattr(LearnerRank, "step", hang.in_a_thread)
    message = await late(run, trainer, hang)
    assert "phase train: the learner's step did not return" in message
    assert find_latest(run.store, run.run_id) is None


async def test_a_weight_sync_that_hangs_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path)
    trainer = run.build()
    hang = Hang(trainer)
    monkeypatch.setattr(trainer._parts.workers.weights, "sync", hang.on_the_loop)
    message = await late(run, trainer, hang)
    assert "phase sync: the engine did not load the learner's weights" in message


async def test_a_store_that_hangs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path, schedule={"total_steps": 1})
    trainer = run.build()
    hang = Hang(trainer)
    monkeypatch.setattr(type(run.store), "put_if_absent", hang.in_a_thread)
    with pytest.raises(StepTimeout, match="phase checkpoint: a checkpoint was not stored"):
        await trainer.train()
    monkeypatch.undo()
    hang.release.set()
    with suppress(Exception):  # the save that was released finds no manifest
        await trainer._parts.saver.drain()
    await run.finish_without_training(trainer)


async def test_a_save_that_hangs_beside_training_is_named_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = a_run(tmp_path, checkpoints={"interval": 1})
    trainer = run.build()
    hang = Hang(trainer)
    monkeypatch.setattr(type(run.store), "put_if_absent", lambda *_: hang.release.wait())
    drain = trainer._parts.saver.drain

    async def hurried() -> None:
        if run.events(StepCompleted):
            hang._loop.call_soon(hang._hurry)
        await drain()

    monkeypatch.setattr(type(trainer._parts.saver), "drain", lambda _: hurried())
    with pytest.raises(StepTimeout, match="phase checkpoint: a checkpoint was not stored"):
        await trainer.train()
    monkeypatch.undo()
    hang.release.set()
    with suppress(Exception):
        await trainer._parts.saver.drain()
    await run.finish_without_training(trainer)


async def test_an_evaluation_that_hangs_is_named_and_the_step_before_it_is_saved(
    tmp_path: Path,
) -> None:
    run, hangs = a_run(tmp_path, schedule={"total_steps": 1}), list[Hang]()
    trainer = run.build(provider=hanging_from(16, hangs))
    hangs.append(Hang(trainer))
    message = await late(run, trainer, hangs[0])
    assert "phase eval: the rollouts of an evaluation did not end" in message
    assert find_latest(run.store, run.run_id) is not None


async def test_a_run_ends_at_its_deadline_with_the_last_step_saved_and_attempts_share_it(
    tmp_path: Path,
) -> None:
    run = a_run(tmp_path, schedule={"total_steps": 10_000, "run_timeout_s": 1600.0})
    trainer = run.build()
    watchdog = trainer._parts.watchdog
    watchdog.ran_before_s = 1600.0 - 0.5
    with pytest.raises(RunTimeout, match=r"longer than schedule.run_timeout_s \(1600 s\)"):
        await run.finish(trainer)
    last = [event.step for event in run.events(StepCompleted)][-1:] or [0]
    latest = find_latest(run.store, run.run_id)
    if latest is None:
        assert last == [0], "a slow machine may not finish a step in time"
        return
    manifest = read_saved(run.store, latest).manifest
    assert [manifest.step] == last
    assert manifest.ran_s >= 1600.0

    with pytest.raises(RunTimeout):
        await run.train(attempt=2, resume_from=latest)
    assert run.events(StepCompleted, attempt=2) == []


async def test_another_run_from_the_checkpoint_has_a_clock_of_its_own(tmp_path: Path) -> None:
    first = a_run(tmp_path, schedule={"total_steps": 1, "run_timeout_s": 1600.0})
    trainer = first.build()
    trainer._parts.watchdog.ran_before_s = 1000.0
    await first.finish(trainer)
    latest = find_latest(first.store, first.run_id)
    second = ShortRun(tmp_path, run_id="run_other")
    second.spec = first.spec
    trainer = second.build(resume_from=latest)
    assert trainer._parts.watchdog.ran_s < 1000.0
    await second.finish_without_training(trainer)


async def test_a_loop_that_hangs_itself_is_left_from_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_module, "GRACE_S", 0.05)
    messages: list[str] = []
    run = a_run(tmp_path)
    context = replace(
        with_step_timeout(run.begin(), SHORT_S),
        on_blocked=lambda error: messages.append(str(error)),
    )
    watchdog = Watchdog(context=context, num_sampled=lambda: 0)

    async def block() -> None:
        async with watchdog.step(3):
            threading.Event().wait(0.3)
            await asyncio.sleep(SHORT_S)

    with pytest.raises(StepTimeout):
        await block()
    assert len(messages) == 1
    assert messages[0].startswith("step 3 took longer")
    async with watchdog.step(4):
        pass
    await asyncio.sleep(0.15)
    assert len(messages) == 1
    run.journal.close(drain_s=0.0)


async def test_engines_elsewhere_are_asked_what_they_drew_and_may_hang_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog_module, "REFRESH_S", SHORT_S)
    run = a_run(tmp_path)
    drawn = iter([7, 12])
    known = [0]

    async def ask() -> None:
        known[0] = next(drawn, None) or await asyncio.Event().wait()  # type: ignore[func-returns-value]

    watchdog = Watchdog(
        context=with_step_timeout(run.begin(), SHORT_S),
        num_sampled=lambda: known[0],
        refresh=ask,
    )
    with pytest.raises(StepTimeout, match="the engine sampled 5 tokens"):
        async with watchdog.step(1, phase="rollout"):
            await asyncio.Event().wait()
    with pytest.raises(StepTimeout, match="the engine sampled no tokens"):
        async with watchdog.step(2, phase="rollout"):
            await asyncio.Event().wait()
    async with watchdog.step(3, phase="checkpoint"):
        pass
    run.journal.close(drain_s=0.0)


QUICK = {"trajectory_timeout_s": 0.5, "call_timeout_s": 0.1, "infra_retry_allowance_s": 0.1}


@pytest.mark.invariant("a process with a hanging thread ends and names the thread")
@pytest.mark.parametrize(
    "what",
    [pytest.param(each, marks=[pytest.mark.long] if each == "learner" else []) for each in HANGS],
)
def test_a_process_with_a_hanging_thread_says_why_and_is_gone(tmp_path: Path, what: str) -> None:
    sections = {
        "environment": {"max_turns": 1, **QUICK},
        "eval": {"before_training": False, "interval": 0},
        # A learner that hangs is reached after the rollouts, however busy the machine is.
        "schedule": {"step_timeout_s": 5.0 if what == "learner" else 2.0},
        "rollout": {**LENGTHS, "n_samples_per_prompt": 2},
    }
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(a_spec(tmp_path, **sections)))
    run_dir = tmp_path / "runs" / "run_1"
    arguments = ["run", "--threads", "1", "--spec", str(spec), "--run-dir", str(run_dir)]
    done = run_forked(hanging.run, [what, *arguments], timeout_s=WAIT_S)
    assert done.returncode == EXIT_HUNG, done.stderr
    record = ExitRecord.model_validate_json((run_dir / "attempt-1" / "exit.json").read_bytes())
    assert record.reason is ReasonCode.STEP_TIMEOUT
    phase = "train" if what == "learner" else "rollout"
    assert f"in phase {phase}: " in record.message
    assert done.stderr.count("error: ") == 1


def test_every_phase_has_a_sentence() -> None:
    assert set(HUNG) == set(get_args(PhaseStarted.model_fields["phase"].annotation))
