"""Whose folders are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import AttemptDir, ExitRecord, PidRecord
from trainer.handover.launch import write_pid
from trainer.leftovers import own_path, remove_earlier_copies
from trainer.process import EXIT_FAILED, Launch, run_attempt


def an_attempt(run_dir: Path, number: int) -> AttemptDir:
    """What an attempt that was killed in a save leaves on the disk."""
    attempt = AttemptDir(run_dir, number)
    for folder in ("resume", "model", "weights", "trajectories"):
        (attempt.path / folder).mkdir(parents=True)
        (attempt.path / folder / "file").write_bytes(b"w")
    attempt.events.write_bytes(b"")
    attempt.checkpoint(number).mkdir(parents=True)
    (attempt.checkpoint(number) / "learner.pt").write_bytes(b"w")
    return attempt


def left_of(attempt: AttemptDir) -> set[str]:
    inside = {path.name for path in attempt.path.iterdir()}
    return inside | {"checkpoint" for _ in attempt.run_dir.rglob(f"global*/{attempt.path.name}")}


BARE = {"trajectories", "events.jsonl"}
WHOLE = BARE | {"resume", "model", "weights", "checkpoint"}


def test_weights_that_earlier_attempts_left_are_deleted_unless_one_still_lives(
    tmp_path: Path,
) -> None:
    attempts = [an_attempt(tmp_path / "run_1", number) for number in (1, 2, 3, 4)]
    other = an_attempt(tmp_path / "run_2", 1)
    me = psutil.Process()
    write_pid(attempts[0], PidRecord(pid=me.pid, started_at=me.create_time() - 1000.0))
    write_pid(attempts[1], PidRecord(pid=me.pid, started_at=me.create_time()))
    remove_earlier_copies(attempts[2])
    assert left_of(attempts[0]) == BARE | {"pid.json"}
    assert left_of(attempts[1]) == WHOLE | {"pid.json"}
    assert [left_of(each) for each in (*attempts[2:], other)] == [WHOLE] * 3
    assert not (tmp_path / "run_1" / "checkpoints" / "global_step_1").exists()


async def test_an_attempt_begins_by_freeing_what_the_one_before_has_left(tmp_path: Path) -> None:
    killed = an_attempt(tmp_path / "runs" / "run_1", 1)
    spec = tmp_path / "spec.json"
    given = Launch(spec=spec, run_dir=killed.run_dir, attempt=2, resume_from=None, environ={})
    assert await run_attempt(given) == EXIT_FAILED, "there is no spec"
    record = ExitRecord.model_validate_json(given.dir.exit.read_bytes())
    assert record.reason is ReasonCode.SPEC_REJECTED
    assert left_of(killed) == BARE


def test_folders_of_processes_that_are_gone_are_deleted_and_no_others(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from trainer.leftovers import own_path;"
    program += "own_path(Path(sys.argv[1]), 'x-').mkdir()"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / f"x-{os.getppid()}-alive").mkdir()
    (tmp_path / "x-no-number").mkdir()
    (tmp_path / "y-1-other").mkdir()
    mine = own_path(tmp_path, "x-")
    assert mine.name.startswith(f"x-{os.getpid()}-")
    assert mine != own_path(tmp_path, "x-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"x-{os.getppid()}-alive", "x-no-number", "y-1-other"]
    )
