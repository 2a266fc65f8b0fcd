"""vLLM's own CUDA platform on a machine without a GPU: it is made to believe in eight H100.

What vLLM then checks and decides is its own code for GPUs. `pretend_gpus` comes before any other
import of vLLM, which otherwise finds out by itself where it is.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable

COMPILED = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._C_stable",
    "vllm._moe_C",
)
"""Modules of kernels, which only the build for GPUs has."""
NUM_GPUS = 8
GPU_BYTES = 80 * 1024**3


class _NoKernels(types.ModuleType):
    """Stands for a module of kernels; they are looked up, and not called."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_options: None


def pretend_gpus() -> None:
    """Let vLLM find eight H100, and Triton, with which it chooses another model runner."""
    for name in COMPILED:
        try:
            importlib.import_module(name)
        except ImportError:
            sys.modules[name] = _NoKernels(name)
    platforms = importlib.import_module("vllm.platforms")
    cuda = importlib.import_module("vllm.platforms.cuda")
    capability = importlib.import_module("vllm.platforms.interface").DeviceCapability(9, 0)
    facts = {
        "get_device_capability": capability,
        "get_device_name": "NVIDIA H100 80GB HBM3",
        "get_device_total_memory": GPU_BYTES,
        "device_count": NUM_GPUS,
        "is_fully_connected": True,
    }
    methods = {name: classmethod(_answering(fact)) for name, fact in facts.items()}
    platforms._current_platform = type("H100", (cuda.NonNvmlCudaPlatform,), methods)()
    importlib.import_module("vllm.config.vllm").HAS_TRITON = True


def _answering(fact: object) -> Callable[..., object]:
    """Return a method that says the same of every device."""
    return lambda _platform, *_devices, **_named: fact
