"""Llama 3, dense: neither biases nor norms of heads."""

from __future__ import annotations

from trainer.inputs.model.families.family import Family

LLAMA = Family(
    name="Llama 3",
    model_type="llama",
    architecture="LlamaForCausalLM",
    has_projection_biases=False,
    has_head_norms=False,
    off=("attention_bias", "mlp_bias", "attention_dropout"),
)
