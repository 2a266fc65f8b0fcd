"""What a dead holder left is found by its mark, whatever it calls itself."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from hillclimb.process.identity import (
    ATTEMPT_VARIABLE,
    HOME_VARIABLE,
    SAME_START_S,
    is_alive,
    is_same_process,
    kill_marked,
    start_detached,
    start_of,
)
from hillclimb.stack.system.processes import Identity, identify

TITLED = """
import pathlib, subprocess, sys, time
import setproctitle
setproctitle.setproctitle("ray::LearnerWorker, or an engine of vLLM, with a long title" * 4)
if sys.argv[1:]:
    subprocess.Popen([sys.executable, *sys.argv[1:]])
pathlib.Path("titled-%d" % len(sys.argv)).touch()
time.sleep(600)
"""
"""As Ray's workers and vLLM's engines do; given a script it starts that too."""


def test_a_process_and_its_child_that_write_a_title_over_their_environment_are_found(
    tmp_path: Path,
) -> None:
    script = tmp_path / "titled.py"
    script.write_text(TITLED)
    mark = {ATTEMPT_VARIABLE: "att_1", HOME_VARIABLE: str(tmp_path)}
    started = start_detached(
        (sys.executable, str(script), str(script)),
        cwd=tmp_path,
        environment=dict(os.environ) | mark,
        log=tmp_path / "log",
    )
    assert started.popen is not None
    try:
        deadline = time.monotonic() + 60.0
        while not ((tmp_path / "titled-1").exists() and (tmp_path / "titled-2").exists()):
            assert started.running(), (tmp_path / "log").read_text()
            assert time.monotonic() < deadline, "neither came"
            time.sleep(0.05)
        (child,) = psutil.Process(started.record.pid).children()
        assert kill_marked(tmp_path, "att_1") == 2
        started.popen.wait(30)
        assert not is_alive(started.record)
        # Whoever adopted it may take a moment to bury it.
        _, alive = psutil.wait_procs([child], timeout=30)
        assert [each for each in alive if each.status() != psutil.STATUS_ZOMBIE] == []
    finally:
        started.kill()


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock, as far as psutil sees: Linux then moves the boot time by as much."""
    real = psutil.boot_time()

    def set_by(seconds: float) -> None:
        monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: real + seconds)

    return set_by


@pytest.mark.parametrize("seconds", [3600.0, -3600.0])
def test_a_process_is_known_again_after_the_clock_was_set(
    set_clock: Callable[[float], None], seconds: float
) -> None:
    """Otherwise a runner takes its trainer for dead, and the next attempt starts beside it."""
    me = identify(os.getpid())
    assert me is not None
    set_clock(seconds)
    assert me.alive()
    assert identify(os.getpid()) == me
    assert not Identity(pid=me.pid, started=me.started - 60).alive()


def test_a_record_of_an_earlier_version_is_known_as_well_as_before() -> None:
    """A runner that was updated adopts the trainers of the one before."""
    since_1970 = psutil.Process().create_time()
    assert abs(since_1970 - start_of(psutil.Process())) > SAME_START_S
    assert is_same_process(os.getpid(), since_1970)
    assert not is_same_process(os.getpid(), since_1970 - 60)
