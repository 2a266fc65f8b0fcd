"""On a CPU, vLLM's own process is forked from a template that imports vLLM while this one does.

vLLM's way is to start it anew, and then everything is imported a second time, after the first: an
engine took 13.3 s to start then, and takes 2.9 s so (measured: tiny model, two cores). With a GPU,
where this was never tried, vLLM's own way stays.

Two things a fork does not get: libraries that vLLM would have the new process preload (LD_PRELOAD;
the wheel in `requirements/` brings none), and a preload where this package cannot be imported from
the working directory or the installed packages - it is then as slow as a new process.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from pathlib import Path
from unittest.mock import patch

import torch

from trainer.engines.vllm.options import CPU_ENVIRONMENT, ENVIRONMENT
from trainer.leftovers import own_path

_MODULES = ["trainer.engines.vllm.preload"]
_SOCKET = "hillclimb-fork-"


def begin_imports() -> None:
    """Set vLLM's environment, and let the template begin to import; call it before importing vLLM.

    Other modules are in the template where something else has started it already: then its forks
    take as long as new processes.
    """
    os.environ.update(ENVIRONMENT)
    if not torch.cuda.is_available():
        os.environ.update(CPU_ENVIRONMENT)
        multiprocessing.set_forkserver_preload(_MODULES)
        _own_socket()
        forkserver.ensure_running()


def end_imports() -> None:
    """Let the template go: nothing is going to be forked from it."""
    number: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # noqa: SLF001
    if number is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(number, signal.SIGKILL)
            # Dead and not reaped is how `ensure_running` expects to find it.
            os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)


def _own_socket() -> None:
    """Put the template's socket where the next process finds what a killed one has left."""
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
    if "tempdir" not in settings:
        folder = own_path(Path(tempfile.gettempdir()), _SOCKET)
        folder.mkdir(mode=0o700)
        settings["tempdir"] = str(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


class _Fork(ForkServerProcess):
    """A fork of the template with the environment of whoever starts it."""

    def start(self) -> None:
        self._environ = dict(os.environ)
        super().start()

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environ)
        super().run()


class _Forks(ForkServerContext):
    Process = _Fork


@contextmanager
def forks() -> Iterator[None]:
    """Let vLLM start its processes from the template, of which it does not know."""
    if torch.cuda.is_available():
        yield
        return

    def context() -> BaseContext:
        return _Forks()

    with patch("vllm.v1.engine.utils.get_mp_context", context):
        yield
