"""Rule for linear attention in vLLM's CPU build, which else crashes at the first request."""

from __future__ import annotations

from trainer.inputs.model.families.delta_sizes import DeltaSizes
from trainer.inputs.model.families.family import CausalLMConfig

_LINEAR_HEAD = 128
"""Size of a head of linear attention in published models, and the only one that was tried: with
others a CPU build starts, and crashes at the first request."""


def why_not_linear(config: CausalLMConfig, dtype: str) -> str | None:
    """Return why a CPU build cannot compute the delta nets of a model in `dtype`, or None."""
    delta = DeltaSizes.of(config)
    if {delta.key_dim, delta.value_dim} != {_LINEAR_HEAD}:
        return (
            f"vLLM on a CPU has linear attention for heads of {_LINEAR_HEAD}, and the model's are"
            f" of {delta.key_dim} (keys) and {delta.value_dim} (values)"
        )
    if dtype != "bfloat16":
        return (
            "vLLM on a CPU computes linear attention in bfloat16 alone: set engine.dtype to"
            " bfloat16, or engine.type to torch, which is exact in float32"
        )
    return None
