"""Into how many GPUs an engine can cut a model: vLLM demands that its parts are equal."""

from __future__ import annotations

from trainer.contract.clusters.shapes import ModelShape
from trainer.contract.sections import EngineSpec

LARGEST = 64
"""Of `engine.tensor_parallel_size`."""


def why_uncut(engine: EngineSpec, shape: ModelShape) -> str | None:
    """Say why vLLM would not start with `engine.tensor_parallel_size`; None where it would."""
    size = engine.tensor_parallel_size
    if engine.type == "torch" or _divides(size, shape):
        return None
    others = ", ".join(str(each) for each in range(1, LARGEST + 1) if _divides(each, shape))
    return (
        f"engine.tensor_parallel_size {size} does not divide the model into equal parts (it has"
        f" {shape.num_heads} attention heads, {shape.num_kv_heads} of keys and values, and an MLP"
        f" {shape.intermediate_size} wide), as vLLM demands: take one of {others}"
    )


def _divides(size: int, shape: ModelShape) -> bool:
    """Source: vLLM 0.32, `ModelConfig.verify_with_parallel_config` and `Qwen3Attention`.

    Heads of keys and values are copied where there are fewer of them than GPUs.
    """
    fewer, more = sorted((size, shape.num_kv_heads))
    return shape.num_heads % size == shape.intermediate_size % size == more % fewer == 0
