"""Checkpoints of whole runs, tried by the real process: events, store, recovery, retention."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from hillclimb.protocol.events import (
    CheckpointDeleted,
    CheckpointQualified,
    CheckpointRefused,
    CheckpointSaved,
    RunWarning,
    TrainerStarted,
)
from hillclimb.protocol.rundir import QUALIFIED, REFUSED, checkpoint_name
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.attempt.stop_signal import StopRequested
from trainer.errors import CheckpointError
from trainer.jobs.train import recovery as recoveries
from trainer.jobs.train.checkpoints import (
    Position,
    Saved,
    find_latest,
    stored_checkpoints,
)
from trainer.jobs.train.loop import Trainer
from trainer.jobs.train.qualification import process as processes
from trainer.jobs.train.qualification import qualifier as qualifiers
from trainer.jobs.train.qualification.process import TrialProcess, TrialUndecided
from trainer.jobs.train.qualification.qualifier import Qualifier
from trainer.jobs.train.qualification.server import serve
from trainer.jobs.train.saving import Saver

SECTIONS: dict[str, dict[str, Any]] = {
    "schedule": {"total_steps": 2},
    "checkpoints": {"interval": 1, "qualify": True},
    "eval": UNEVALUATED,
}
THREE_STEPS = {"schedule": {"total_steps": 3}}


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[TrialProcess]:
    """One process for all attempts of the test: it imports its libraries once."""
    process = TrialProcess()
    create = Qualifier.__init__

    def with_process(self: Qualifier, **options: Any) -> None:
        create(self, **options | {"process": process})

    monkeypatch.setattr(Qualifier, "__init__", with_process)
    monkeypatch.setattr(Qualifier, "close", lambda _: None)
    yield process
    process.close()


def key_of(run: ShortRun, step: int, attempt: int = 1) -> str:
    return f"runs/{run.run_id}/{checkpoint_name(step, attempt)}"


def paths(events: list[Any]) -> list[str]:
    return [event.path for event in events]


def unmark(run: ShortRun, step: int) -> None:
    """Leave the checkpoint as a kill before its trial would."""
    run.store.delete_prefix(f"{key_of(run, step)}/{QUALIFIED}")


@pytest.mark.invariant("the real process tries what is saved and what is resumed from")
@pytest.mark.usefixtures("shared")
async def test_nothing_is_resumed_from_that_a_fresh_process_has_not_loaded(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, **SECTIONS)
    await run.train()
    assert_last_is_qualified(run)
    unmark(run, 2)
    await run.train(2, resume_from=key_of(run, 2))
    assert run.events(TrainerStarted, attempt=2)[0].resumed_from_step == 2
    assert paths(run.events(CheckpointQualified, attempt=2)) == [checkpoint_name(2, 1)]
    assert run.store.exists(f"{key_of(run, 2)}/{QUALIFIED}")
    break_state(run, 2)
    await run.train(3, resume_from=key_of(run, 2))
    (refused,) = run.events(CheckpointRefused, attempt=3)
    assert (refused.step, refused.path) == (2, checkpoint_name(2, 1))
    assert "does not match its manifest" in refused.reason
    assert run.events(TrainerStarted, attempt=3)[0].resumed_from_step == 1
    assert run.events(CheckpointQualified, attempt=3)[-1].path == checkpoint_name(2, 3)


def assert_last_is_qualified(run: ShortRun) -> None:
    qualified = run.events(CheckpointQualified)
    assert qualified[-1].path == checkpoint_name(2, 1)
    assert 0.0 < qualified[-1].duration_s < 60.0
    marked = [each.step for each in stored_checkpoints(run.store, run.run_id) if each.is_qualified]
    assert marked == [event.step for event in qualified]
    facts = json.loads(run.store.get(f"{key_of(run, 2)}/{QUALIFIED}"))
    saved = run.events(CheckpointSaved)[-1]
    assert (facts["manifest_sha256"], facts["reason"]) == (saved.manifest_sha256, None)
    assert not (run.dir().path / "qualify").exists()


def break_state(run: ShortRun, step: int) -> None:
    file = run.root / "blobs" / key_of(run, step) / "learner" / "rank-0.bin"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


async def test_without_a_sound_checkpoint_the_reason_is_that_of_the_newest(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, **SECTIONS | {"checkpoints": {"interval": 1}})
    await run.train()
    for step in (1, 2):
        break_state(run, step)
    with pytest.raises(CheckpointError, match=r"global_step_2/.*does not match its manifest"):
        run.build(2, resume_from=key_of(run, 2))


async def test_a_refused_checkpoint_is_neither_resumed_from_nor_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = {"interval": 1, "keep_last": 1, "qualify": True}
    run = ShortRun(tmp_path, **SECTIONS | THREE_STEPS | {"checkpoints": kept})
    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    reasons = {1: None, 2: "no_update: loss nan", 3: None}

    def decided(self: Qualifier, saved: Saved, directory: Path) -> str | None:
        return reasons[saved.manifest.step]

    monkeypatch.setattr(Qualifier, "try_fetched", decided)
    save = Saver.save

    async def tried(saver: Saver, position: Position) -> None:
        await save(saver, position)
        await saver.drain()
        assert saver._trials is not None
        await saver._trials

    monkeypatch.setattr(Saver, "save", tried)
    await run.train()
    (refused,) = run.events(CheckpointRefused)
    assert (refused.step, refused.reason) == (2, "no_update: loss nan")
    assert [event.step for event in run.events(CheckpointQualified)] == [1, 3]
    deleted = [checkpoint_name(step, 1) for step in (1, 2)]
    assert sorted(paths(run.events(CheckpointDeleted))) == deleted
    assert [each.step for each in stored_checkpoints(run.store, run.run_id)] == [3]


async def test_a_refused_newest_checkpoint_leaves_the_qualified_one_before_it(
    tmp_path: Path,
) -> None:
    kept = {"interval": 1, "keep_last": 9}
    run = ShortRun(tmp_path, **SECTIONS | THREE_STEPS | {"checkpoints": kept})
    await run.train()
    run.store.put(f"{key_of(run, 2)}/{QUALIFIED}", b"{}")
    run.store.put(f"{key_of(run, 3)}/{REFUSED}", b"{}")
    assert find_latest(run.store, run.run_id) == key_of(run, 2)
    checkpoints = run.build(2)._parts.saver.checkpoints
    assert list(checkpoints.prune(1)) == [checkpoint_name(1, 1)]
    run.journal.abandon()
    with pytest.raises(CheckpointError, match="failed its trial when it was saved"):
        recoveries.Recovery(
            context=run.begin(3, resume_from=key_of(run, 3)), qualifier=None
        )._fetch_qualified(key_of(run, 3))
    run.journal.abandon()


def undecided(run: ShortRun, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Trainer]:
    def refuse(*_: object, **__: object) -> None:
        raise TrialUndecided("the trial's process ended with -9")

    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    monkeypatch.setattr(TrialProcess, "run", refuse)
    return run.build


async def test_a_trial_without_a_result_is_a_warning_and_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ShortRun(tmp_path, **SECTIONS)
    await run.finish(undecided(run, monkeypatch)())
    codes = {event.code for event in run.events(RunWarning)}
    assert "checkpoint_not_qualified" in codes
    assert not run.events(CheckpointRefused)
    trainer = run.build(2, resume_from=key_of(run, 2))
    await run.finish(trainer)
    (warning,) = run.events(RunWarning, attempt=2)
    assert "is resumed from without a trial" in warning.message


async def test_a_stop_does_not_wait_for_the_trial_of_a_run_that_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, release = threading.Event(), threading.Event()

    def hang(*_: object, **__: object) -> None:
        begun.set()
        release.wait(20.0)
        raise TrialUndecided("it was released")

    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    monkeypatch.setattr(TrialProcess, "run", hang)
    run = ShortRun(tmp_path, **SECTIONS)
    trainer = run.build()
    finishing = asyncio.create_task(trainer.train())
    while trainer._parts.saver.saved_step != 2:  # noqa: ASYNC110 - nothing announces it
        await asyncio.sleep(0.02)
    assert not finishing.done()
    trainer._context.stop.request_stop()
    await finishing
    assert trainer._is_final_saved
    release.set()
    await trainer.close()
    run.journal.close(drain_s=0.0)
    (warning,) = run.events(RunWarning)
    assert "asked to stop before its trial had ended" in warning.message


@pytest.mark.parametrize("room", ["memory", "disk"])
async def test_a_trial_for_which_there_is_no_room_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    run = ShortRun(tmp_path, **SECTIONS)
    if room == "memory":
        monkeypatch.setattr(qualifiers, "MEMORY_PER_BYTE", 1e9)
    else:
        full = shutil.disk_usage(tmp_path)._replace(free=1000)
        monkeypatch.setattr(qualifiers.shutil, "disk_usage", lambda _: full)
    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    await run.train()
    warnings = run.events(RunWarning)
    assert f"GiB of {room} that are free" in warnings[-1].message


async def test_a_folder_that_cannot_be_written_is_no_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ShortRun(tmp_path, **SECTIONS)
    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    monkeypatch.setattr(qualifiers, "TRIAL", "no-such-folder/trial.json")
    await run.train()
    assert "its trial could not be prepared" in run.events(RunWarning)[-1].message
    assert not run.events(CheckpointRefused)


def test_a_hanging_trial_is_ended_at_its_deadline_and_the_next_starts_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SERVER", "tests.trainer.jobs.train.qualification.light_server")
    process = TrialProcess()
    process.start()
    first = process._process
    assert first is not None
    os.kill(first.pid, signal.SIGSTOP)
    with pytest.raises(TrialUndecided, match=r"took over 0\.2 s"):
        process.run(tmp_path, deadline_s=0.2)
    first.wait(60.0)
    with pytest.raises(TrialUndecided, match="ended with 1"):
        process.run(tmp_path, deadline_s=20.0)
    second = process._process
    assert second is not None
    second.kill()
    second.wait()
    with pytest.raises(TrialUndecided, match="ended with 1"):
        process.run(tmp_path, deadline_s=20.0)
    process.close()


def test_the_trainer_does_not_fail_of_a_killed_process_that_a_busy_machine_lets_end_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "CLOSE_S", 0.0)
    process = TrialProcess()
    process.start()
    first = process._process
    assert first is not None
    process.close()
    assert first.wait(60.0) == -signal.SIGKILL


def test_a_trial_is_waited_for_beside_a_thousand_open_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SERVER", "tests.trainer.jobs.train.qualification.light_server")
    process = TrialProcess()
    with ExitStack() as opened:
        for _ in range(1_100):
            opened.callback(os.close, os.dup(0))
        with pytest.raises(TrialUndecided, match="ended with 1"):
            process.run(tmp_path, deadline_s=20.0)
        process.close()


def test_the_process_dies_with_the_one_that_started_it(tmp_path: Path) -> None:
    """However that one ends: here it is killed."""
    pid = os.fork()
    if pid == 0:
        process = TrialProcess()
        process.start()
        assert process._process is not None
        (tmp_path / "part").write_text(str(process._process.pid))
        (tmp_path / "part").rename(tmp_path / "pid")
        time.sleep(60.0)
        os._exit(0)
    while not (tmp_path / "pid").exists():
        time.sleep(0.01)
    server = int((tmp_path / "pid").read_text())
    time.sleep(0.5)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 5.0
    while psutil.pid_exists(server) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not psutil.pid_exists(server)


def test_the_process_has_none_of_the_trainers_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HILLCLIMB_ATTEMPT_TOKEN", "secret-1")
    monkeypatch.setenv("WANDB_API_KEY", "secret-2")
    process = TrialProcess()
    process.start()
    assert process._process is not None
    environment = psutil.Process(process._process.pid).environ()
    process.close()
    assert not [name for name, value in environment.items() if value.startswith("secret")]


def test_a_server_answers_each_line_with_an_exit_code(tmp_path: Path) -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w") as answers:
        serve([f"{tmp_path}\n", f"{tmp_path}\n"], answers)
    with os.fdopen(read) as lines:
        assert lines.read() == "1\n1\n"


async def test_a_run_that_is_stopped_does_not_wait_for_a_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ShortRun(tmp_path, **SECTIONS | THREE_STEPS)
    trainer = run.build()
    saver = trainer._parts.saver

    def hanging(self: TrialProcess, folder: Path, *, deadline_s: float) -> None:
        while not saver._is_closing:
            time.sleep(0.01)
        raise TrialUndecided("the trial's process ended with -9")

    monkeypatch.setattr(TrialProcess, "start", lambda _: None)
    monkeypatch.setattr(TrialProcess, "run", hanging)
    train_step = trainer._train_step

    async def stopping() -> None:
        await train_step()
        if trainer.step == 2:
            run.stop.request_stop()

    monkeypatch.setattr(trainer, "_train_step", stopping)
    started = time.monotonic()
    with pytest.raises(StopRequested):
        await run.finish(trainer)
    assert time.monotonic() - started < 20.0
    assert not run.events(CheckpointQualified)
    assert not [e for e in run.events(RunWarning) if e.code == "checkpoint_not_qualified"]
