"""Qwen2 and Qwen2.5, dense: biases of queries, keys and values, no norms of heads."""

from __future__ import annotations

from trainer.inputs.model.families.family import Family

QWEN2 = Family(
    name="Qwen2.5",
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    has_projection_biases=True,
    has_head_norms=False,
    off=("use_sliding_window", "attention_dropout"),
)
