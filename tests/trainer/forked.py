"""Commands of the trainer as processes that need not import torch and transformers first.

That takes seven CPU seconds. multiprocessing's fork server takes them once, on the first start;
each process is then a fork of that one, which has no threads and has run nothing. It ends when the
tests' process has, however that ended. A fork differs from a process of its own in three things:
all have the same hash seed, environment variables that modules read when they are imported are
those of the first start, and the interpreter is left without being torn down.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from pathlib import Path

import numpy as np
import torch

Command = Callable[[Sequence[str]], int]
"""Takes the command line after the program's name and returns the exit code; not a closure."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.trainer.template"])
_LOCK = threading.Lock()
"""Whoever starts a process also asks for the exit codes of the others, which are there once."""


def run_forked(
    command: Command, arguments: Sequence[str], *, timeout_s: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command in a process and return how it ended, as `subprocess.run` does.

    Raises:
        subprocess.TimeoutExpired: it took longer, and is killed.
    """
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        out.touch()
        err.touch()
        given = (command, tuple(arguments), dict(os.environ), out, err)
        process = CONTEXT.Process(target=_become, args=given)
        with _LOCK:
            process.start()
        ended: list[object] = []
        try:
            ended = wait([process.sentinel], timeout_s)  # type: ignore[assignment]
        finally:
            if not ended:
                process.kill()
        with _LOCK:
            process.join()
        if not ended:
            raise subprocess.TimeoutExpired([*arguments], timeout_s or 0.0, None, err.read_bytes())
        assert process.exitcode is not None
        return subprocess.CompletedProcess(
            [*arguments], process.exitcode, out.read_text(), err.read_text()
        )


def _become(
    command: Command, arguments: Sequence[str], environ: dict[str, str], out: Path, err: Path
) -> None:
    for number, path in ((1, out), (2, err)):
        with path.open("wb") as file:
            os.dup2(file.fileno(), number)
    # Whatever is random where no seed is set differs from process to process, as `random` sees to.
    torch.seed()
    np.random.seed()
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = [command.__module__, *arguments]
    try:
        sys.exit(command(arguments))
    finally:
        # What an interpreter does at its end, and multiprocessing does not.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
