"""Qwen3, dense: norms of queries and keys per head, no biases."""

from __future__ import annotations

from trainer.inputs.model.families.family import Family

QWEN3 = Family(
    name="Qwen3",
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    has_projection_biases=False,
    has_head_norms=True,
    off=("attention_bias", "use_sliding_window", "attention_dropout"),
)
