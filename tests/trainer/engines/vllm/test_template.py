"""The template from which vLLM's process is forked."""

from __future__ import annotations

import multiprocessing
import os
import sys
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests.trainer.engines.vllm.late import NEEDS_VLLM
from trainer.engines.vllm.template import _Forks, begin_imports, end_imports

pytestmark = NEEDS_VLLM


def tell(connection: Connection) -> None:
    plugins = import_module("vllm.plugins")
    has_vllm = "vllm.v1.engine.core" in sys.modules and not plugins.plugins_loaded
    connection.send((os.environ.get("SET_LATER"), has_vllm))


@pytest.mark.long
def test_a_template_that_was_let_go_is_made_again() -> None:
    """First, so that the one let go has not imported everything yet."""
    begin_imports()
    end_imports()
    begin_imports()
    here, there = _Forks().Pipe()
    process = _Forks().Process(target=there.send, args=("hello",))
    process.start()
    assert here.poll(60.0)
    assert here.recv() == "hello"
    process.join()


@pytest.mark.invariant("a fork of the template has vLLM imported and its parent's environment")
def test_a_fork_has_vllm_and_the_environment_of_whoever_starts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And our plugin is still to be called in it: that one ends it with its parent."""
    begin_imports()
    for value in ("one", "two"):
        monkeypatch.setenv("SET_LATER", value)
        here, there = _Forks().Pipe()
        process = _Forks().Process(target=tell, args=(there,))
        process.start()
        assert here.poll(60.0)
        assert here.recv() == (value, True)
        process.join()
    folder = Path(multiprocessing.current_process()._config["tempdir"])  # type: ignore[attr-defined]
    assert folder.name.startswith(f"hillclimb-fork-{os.getpid()}-")
    assert list(folder.iterdir())
