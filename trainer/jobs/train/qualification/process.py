"""The process that forks trials: started once per attempt, without the trainer's secrets."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from hillclimb.process.identity import ATTEMPT_VARIABLE, HOME_VARIABLE

PASSED_ON = (
    ATTEMPT_VARIABLE,
    HOME_VARIABLE,
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "TMPDIR",
    "VIRTUAL_ENV",
)
"""The environment of a trial; by the two marks a runner recognizes the processes of an attempt."""
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
CLOSE_S = 5.0
SERVER = "trainer.jobs.train.qualification.server"


class TrialUndecided(Exception):
    """The trial came to no result: it took too long, or its process died."""


class TrialProcess:
    """Starts the process on first use, and again after it was killed."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._turn = threading.Lock()

    def start(self) -> None:
        """Start the process if it does not run; it imports its libraries meanwhile.

        Call it in the main thread: the kernel kills the process when the thread that started it
        ends.
        """
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", SERVER, str(os.getpid())],
            env=environment | HIDDEN,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, folder: Path, *, deadline_s: float) -> None:
        """Run the trial of `folder` in a fork and wait for its end.

        Raises:
            TrialUndecided: no end within `deadline_s`, or its process died.
        """
        with self._turn:
            self.start()
            process = self._process
            assert process is not None
            assert process.stdin is not None
            assert process.stdout is not None
            try:
                process.stdin.write(f"{folder}\n")
                process.stdin.flush()
            except OSError as error:
                raise TrialUndecided("the process for trials died") from error
            if not _has_answer(process.stdout, deadline_s):
                self.close()
                raise TrialUndecided(f"the trial took over {deadline_s:g} s")
            answer = process.stdout.readline().strip()
        if answer != "0":
            raise TrialUndecided(f"the trial's process ended with {answer or 'no exit code'}")

    def close(self) -> None:
        """Kill the process; a trial under way ends with it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        # Its end takes processor time too, of which a busy machine gives a process of this niceness
        # little: no reason for a trainer to fail, or to wait longer.
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=CLOSE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    continue


def _has_answer(pipe: IO[str], deadline_s: float) -> bool:
    """Wait for a line or the end; return False if neither has come by the deadline."""
    # Not `select.select`: it refuses the file numbers of a trainer with a thousand connections.
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(deadline_s))
