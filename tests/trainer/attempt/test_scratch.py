"""Whose folders are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil

from hillclimb.process.launcher import write_pid
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import AttemptDir, ExitRecord, PidRecord
from trainer.attempt.scratch import cleanup_stale, remove_earlier_copies, scratch_path
from trainer.jobs.process import EXIT_FAILED, ProcessOptions, run_attempt


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


def killed(attempt: AttemptDir) -> None:
    """Its process is gone: another one has the number now."""
    me = psutil.Process()
    write_pid(attempt, PidRecord(pid=me.pid, started_at=me.create_time() - 1000.0))


def left_of(attempt: AttemptDir) -> set[str]:
    inside = {path.name for path in attempt.path.iterdir()}
    return inside | {"checkpoint" for _ in attempt.run_dir.rglob(f"global*/{attempt.path.name}")}


BARE = {"trajectories", "events.jsonl"}
WHOLE = BARE | {"resume", "model", "weights", "checkpoint"}


def test_what_earlier_attempts_brought_is_deleted_unless_one_may_still_train(
    tmp_path: Path,
) -> None:
    gone, alive, by_hand, own = (an_attempt(tmp_path / "run_1", number) for number in (1, 2, 3, 4))
    other = an_attempt(tmp_path / "run_2", 1)
    killed(gone)
    me = psutil.Process()
    write_pid(alive, PidRecord(pid=me.pid, started_at=me.create_time()))
    cleanup_stale(own)
    assert left_of(gone) == BARE | {"pid.json", "checkpoint"}
    assert left_of(alive) == WHOLE | {"pid.json"}
    assert [left_of(each) for each in (by_hand, own, other)] == [WHOLE] * 3
    by_hand.exit.write_bytes(b"")
    cleanup_stale(own)
    assert left_of(by_hand) == BARE | {"exit.json", "checkpoint"}


def test_a_copy_that_the_store_never_took_stays_until_it_has_a_later_one(tmp_path: Path) -> None:
    first, second, own = (an_attempt(tmp_path / "run_1", number) for number in (1, 2, 3))
    killed(first)
    killed(second)
    remove_earlier_copies(own, 0)
    assert all("checkpoint" in left_of(each) for each in (first, second))
    remove_earlier_copies(own, 1)
    assert ["checkpoint" in left_of(each) for each in (first, second, own)] == [False, True, True]
    assert not (tmp_path / "run_1" / "checkpoints" / "global_step_1").exists()


async def test_an_attempt_begins_by_freeing_what_the_one_before_has_left(tmp_path: Path) -> None:
    before = an_attempt(tmp_path / "runs" / "run_1", 1)
    killed(before)
    spec = tmp_path / "spec.json"
    given = ProcessOptions(
        spec=spec, run_dir=before.run_dir, attempt=2, resume_from=None, environ={}
    )
    assert await run_attempt(given) == EXIT_FAILED, "there is no spec"
    record = ExitRecord.model_validate_json(given.dir.exit.read_bytes())
    assert record.reason is ReasonCode.SPEC_REJECTED
    assert left_of(before) == BARE | {"pid.json", "checkpoint"}


def test_folders_of_processes_that_are_gone_are_deleted_and_no_others(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from trainer.attempt.scratch import scratch_path;"
    )
    program += "scratch_path(Path(sys.argv[1]), 'x-').mkdir()"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / f"x-{os.getppid()}-alive").mkdir()
    (tmp_path / "x-no-number").mkdir()
    (tmp_path / "y-1-other").mkdir()
    mine = scratch_path(tmp_path, "x-")
    assert mine.name.startswith(f"x-{os.getpid()}-")
    assert mine != scratch_path(tmp_path, "x-")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"x-{os.getppid()}-alive", "x-no-number", "y-1-other"]
    )
