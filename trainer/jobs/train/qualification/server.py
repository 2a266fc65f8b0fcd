"""Forks a fresh process for each trial: `python -m trainer.jobs.train.qualification.server`.

Importing torch and transformers takes seconds of a core, as long as a demo's step. This process
imports them once and computes nothing itself, so that each of its forks is as new as one that was
started. A line on its input is the folder of a trial; it answers with the fork's exit code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from hillclimb.process.lazy_imports import gc_paused_import

NICENESS = 19
"""Training goes first: a trial takes what it leaves."""
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve trials until the input ends; the argument is the pid of the process that started it."""
    die_with(int(sys.argv[1]))
    os.nice(NICENESS)
    with gc_paused_import():
        from trainer.jobs.train.qualification.trial import run_trial  # noqa: F401, PLC0415 - seconds
        from trainer.learners.rank import LearnerRank  # noqa: F401, PLC0415 - the forks have it then

    serve(sys.stdin, sys.stdout)
    return 0


def serve(requests: Iterable[str], answers: TextIO) -> None:
    """Run one trial per line and answer with the exit code of its process."""
    own = os.getpid()
    for line in requests:
        pid = os.fork()
        if pid == 0:
            os._exit(_forked(Path(line.rstrip("\n")), own))
        _, status = os.waitpid(pid, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        answers.flush()


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _forked(folder: Path, parent: int) -> int:
    """Run the trial and return the exit code."""
    try:
        die_with(parent)
        from trainer.jobs.train.qualification.trial import run_trial  # noqa: PLC0415 - see `main`

        run_trial(folder)
    except BaseException:  # noqa: BLE001 - the edge of a process
        traceback.print_exc()
        sys.stderr.flush()
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
