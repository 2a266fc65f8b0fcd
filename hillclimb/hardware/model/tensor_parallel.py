"""Rule that a tensor-parallel size divides the model into equal parts, which vLLM requires."""

from __future__ import annotations

from hillclimb.hardware.model.shapes import ModelShape
from hillclimb.spec.training.engine import EngineSpec

LARGEST = 64
"""Largest `engine.tensor_parallel_size`."""


def why_indivisible(engine: EngineSpec, shape: ModelShape) -> str | None:
    """Return why vLLM would not start with `engine.tensor_parallel_size`; None if it would."""
    size = engine.tensor_parallel_size
    if engine.type == "torch" or _divides(size, shape):
        return None
    others = ", ".join(str(each) for each in range(1, LARGEST + 1) if _divides(each, shape))
    return (
        f"engine.tensor_parallel_size {size} does not divide the model into equal parts (it has"
        f" {shape.num_heads} attention heads, {shape.num_kv_heads} of keys and values, and an MLP"
        f" {shape.intermediate_size} wide), as vLLM requires: use one of {others}"
    )


def _divides(size: int, shape: ModelShape) -> bool:
    """Tell whether a size divides heads and MLP; key/value heads are copied if there are fewer.

    Source: vLLM 0.32, `ModelConfig.verify_with_parallel_config` and `Qwen3Attention`.
    """
    fewer, more = sorted((size, shape.num_kv_heads))
    return shape.num_heads % size == shape.intermediate_size % size == more % fewer == 0
