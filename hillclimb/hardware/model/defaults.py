"""Rule that a large model on a GPU is not trained with settings that are the tiny models' own."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.run import RunSpec

LARGE = 1_000_000_000
"""Parameters from which a model counts as large."""
LARGEST_RATE = 1e-5
"""Largest learning rate of all weights of a large model: ten times what the presets have."""


def why_no_float32_adapters(dtype: str) -> str | None:
    """Return why vLLM on a GPU serves no adapters in `dtype`, or None.

    Seen on an H100: its kernels for adapters (0.32, `_lora_expand`) take half precision alone.
    """
    if dtype != "float32":
        return None
    return (
        "engine.dtype is float32, in which vLLM serves no adapters on a GPU: set it to bfloat16, or"
        " engine.weight_transport to shm, which sends the merged weights"
    )


def why_unsuited(spec: RunSpec, shape: ModelShape) -> Iterator[str]:
    """Yield each setting with which a GPU would waste itself, or a policy would break.

    The defaults are those of the models that ship with Hillclimb. In float32 attention has no fast
    kernel on a GPU and keeps a score for every pair of tokens.
    """
    adapted = spec.kind == "train" and spec.learner.lora is not None
    served = adapted and spec.engine.transport_between_gpus(has_adapter=True) == "lora"
    if served and (why := why_no_float32_adapters(spec.engine.dtype)) is not None:
        yield why
    if shape.num_parameters < LARGE:
        return
    size = f"a model of {shape.num_parameters / 1e9:.1f} billion parameters on a GPU"
    if spec.engine.dtype == "float32":
        yield (
            f"engine.dtype is float32, in which {size} samples slowly and takes twice the memory:"
            " set it to bfloat16, and engine.type to vllm"
        )
    if spec.kind != "train":
        return
    if spec.learner.policy_dtype == "float32":
        yield (
            f"learner.policy_dtype is float32, in which attention of {size} has no fast kernel: set"
            " it to bfloat16 (weights of record and optimizer stay float32)"
        )
    rate = spec.optimizer.lr
    if spec.learner.lora is None and rate > LARGEST_RATE:
        yield (
            f"optimizer.lr is {rate:g}, which would break {size} within a few updates of all its"
            f" weights: set it to {LARGEST_RATE:g} or less (the presets have 1e-6), or set"
            " learner.lora"
        )
