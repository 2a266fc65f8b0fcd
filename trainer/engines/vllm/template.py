"""Fork server for vLLM's process on a CPU: a template imports vLLM while this process does.

vLLM itself spawns a new process, which imports everything a second time, after the first: an engine
took 13.3 s to start that way, and takes 2.9 s forked (measured: tiny model, two cores). With a GPU,
where a fork was never tried, vLLM spawns as usual.

A fork lacks two things: libraries that vLLM would preload into a new process (LD_PRELOAD; the wheel
in `requirements/` brings none), and the preloaded modules where this package can be imported
neither from the working directory nor from the installed packages: it is then as slow as a spawn.
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

from trainer.attempt.scratch import scratch_path
from trainer.engines.vllm.options import CPU_ENVIRONMENT, ENVIRONMENT

_MODULES = ["trainer.engines.vllm.preload"]
_SOCKET = "hillclimb-fork-"


def begin_imports() -> None:
    """Set vLLM's environment and start the template's imports; call it before importing vLLM.

    Where other code started the process's fork server first, it has other modules: its forks then
    take as long as new processes.
    """
    os.environ.update(ENVIRONMENT)
    if not torch.cuda.is_available():
        os.environ.update(CPU_ENVIRONMENT)
        multiprocessing.set_forkserver_preload(_MODULES)
        _own_socket()
        forkserver.ensure_running()


def end_imports() -> None:
    """Kill the template: nothing will be forked from it."""
    number: int | None = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]  # noqa: SLF001
    if number is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(number, signal.SIGKILL)
            # WNOWAIT leaves the zombie: `ensure_running` reaps it, and fails if somebody else did.
            os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT)


def _own_socket() -> None:
    """Put the template's socket into a scratch folder, which later processes clean up after a kill.

    multiprocessing takes its folder from the process's private config and has no public setting.
    """
    settings = multiprocessing.current_process()._config  # type: ignore[attr-defined]  # noqa: SLF001
    if "tempdir" not in settings:
        folder = scratch_path(Path(tempfile.gettempdir()), _SOCKET)
        folder.mkdir(mode=0o700)
        settings["tempdir"] = str(folder)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)


class _Fork(ForkServerProcess):
    """A fork of the template that gets the environment of the process that starts it.

    A fork server's children have the environment of the server's start: variables that the engine
    set later would be missing.
    """

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
    """Within it vLLM forks its processes from the template instead of spawning them."""
    if torch.cuda.is_available():
        yield
        return

    def context() -> BaseContext:
        return _Forks()

    with patch("vllm.v1.engine.utils.get_mp_context", context):
        yield
