"""On a CPU, vLLM's own process is forked from a template that imports vLLM while this one does.

vLLM's way is to start it anew, and then everything is imported a second time, after the first: an
engine took 13.3 s to start then, and takes 2.9 s so (measured: tiny model, two cores). A process
that has used a GPU must not fork, so with one vLLM's own way stays.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from multiprocessing.context import BaseContext, ForkServerContext, ForkServerProcess
from unittest.mock import patch

import torch

from trainer.engines.vllm.options import CPU_ENVIRONMENT, ENVIRONMENT

_MODULES = ["trainer.engines.vllm.preload"]


def begin_imports() -> None:
    """Set vLLM's environment, and let the template begin to import; call it before importing vLLM.

    Other modules are in the template where something else has started it already: then its forks
    take as long as new processes.
    """
    os.environ.update(ENVIRONMENT)
    if not torch.cuda.is_available():
        os.environ.update(CPU_ENVIRONMENT)
        multiprocessing.set_forkserver_preload(_MODULES)
        forkserver.ensure_running()


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
