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
        f" {shape.num_heads} attention heads, {shape.num_kv_heads} of keys and values, and"
        f" {_mlp(shape)}), as vLLM requires: use one of {others}"
    )


def _divides(size: int, shape: ModelShape) -> bool:
    """Tell whether a size divides heads and MLPs; key/value heads are copied if there are fewer.

    Every process has a part of each expert. Source: vLLM 0.32,
    `ModelConfig.verify_with_parallel_config`, `Qwen3Attention`, `Qwen3MoeSparseMoeBlock` and
    `QwenGatedDeltaNetAttention`.
    """
    fewer, more = sorted((size, shape.num_kv_heads))
    experts, linear = shape.experts, shape.linear
    widths = [] if experts is None else [experts.width]
    if experts is not None and experts.shared_width:
        widths.append(experts.shared_width)
    if linear is not None:
        widths += [linear.key_heads, linear.value_heads]
    if experts is None or experts.num_layers < shape.num_layers:
        widths.append(shape.intermediate_size)
    is_divided = all(each % size == 0 for each in (shape.num_heads, *widths))
    return is_divided and more % fewer == 0 and (experts is None or size <= experts.num)


def _mlp(shape: ModelShape) -> str:
    linear = "" if shape.linear is None else f"{shape.linear.key_heads} of linear attention, "
    if shape.experts is None:
        return f"{linear}an MLP {shape.intermediate_size} wide"
    return f"{linear}experts {shape.experts.width} wide"
