"""vLLM, imported by the test that needs it.

Importing it takes seven CPU seconds after torch and transformers, and every process that collects
tests imports their files.
"""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

from hillclimb.process.lazy_imports import gc_paused_import
from trainer.engines.vllm import template
from trainer.engines.vllm.options import VllmOptions

if TYPE_CHECKING:
    from trainer.engines.vllm.engine import VllmEngine

NEEDS_VLLM = pytest.mark.skipif(
    importlib.util.find_spec("vllm") is None, reason="vLLM has no wheel for this machine"
)
"""Of tests that do not import it themselves."""
# The processes of `tests.trainer.fixtures.forked` are forks of the same template.
template._MODULES.append("tests.trainer.fixtures.template")


def import_vllm() -> ModuleType:
    """`trainer.engines.vllm.engine`; where vLLM does not import, the test is skipped."""
    with gc_paused_import():
        module: ModuleType = pytest.importorskip(
            "trainer.engines.vllm.engine", reason="vLLM does not import here"
        )
    return module


def start_vllm(options: VllmOptions) -> VllmEngine:
    """An engine; where vLLM does not import, the test is skipped."""
    engine: VllmEngine = import_vllm().VllmEngine(options)
    return engine
