"""Tests of the machines: which processes count as left running."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.conformance.machine import living_descendants

# It is made ready before it becomes idle, and has little memory to give back at its end: beside
# other work an idle process gets next to nothing of a core.
IDLE = (
    "import os, sys, time; memory = bytearray(20_000_000);"
    "os.sched_setaffinity(0, {int(sys.argv[1])});"
    "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0));"
    "print(flush=True); time.sleep(60)"
)
BUSY = (
    "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\n"
    "while True: pass"
)


@pytest.mark.skipif(sys.platform != "linux", reason="`/proc` says which signals wait")
def test_a_killed_process_that_gets_no_processor_time_is_not_left_running() -> None:
    with started(IDLE) as idle, started(BUSY), started(BUSY):
        assert pids_left() >= {idle.pid}
        idle.kill()
        assert idle.pid not in pids_left()
        assert len(pids_left()) >= 2, "those that nobody killed"


def pids_left() -> set[int]:
    return {int(line.split()[0]) for line in living_descendants()}


@contextmanager
def started(program: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", program, str(min(os.sched_getaffinity(0)))]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            process.stdout.readline()
            yield process
        finally:
            process.kill()
