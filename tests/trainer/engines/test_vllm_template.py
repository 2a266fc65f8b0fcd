"""The template from which vLLM's process is forked."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection

import pytest

pytest.importorskip("trainer.engines.vllm.engine", reason="vLLM does not import here")

from trainer.engines.vllm.template import _Forks, begin_imports


def tell(connection: Connection) -> None:
    connection.send((os.environ.get("SET_LATER"), "vllm.v1.engine.core" in sys.modules))


def test_a_fork_has_vllm_and_the_environment_of_whoever_starts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin_imports()
    for value in ("one", "two"):
        monkeypatch.setenv("SET_LATER", value)
        here, there = _Forks().Pipe()
        process = _Forks().Process(target=tell, args=(there,))
        process.start()
        assert here.poll(60.0)
        assert here.recv() == (value, True)
        process.join()
