"""Qwen3.5 and 3.6, dense: the text half; three of four layers are gated delta nets."""

from __future__ import annotations

from trainer.inputs.model.families.family import Family

QWEN3_5 = Family(
    name="Qwen3.5",
    model_type="qwen3_5_text",
    architecture="Qwen3_5ForCausalLM",
    has_projection_biases=False,
    has_head_norms=True,
    has_linear_attention=True,
    mask_kinds=("full_attention", "linear_attention"),
    # transformers and vLLM compute the decay of a state in float32; rounded to bfloat16, the time
    # after which a state is forgotten would be off by up to one part in 256.
    in_float32=("linear_attn.A_log", "linear_attn.dt_bias"),
    off=("attention_bias", "attention_dropout"),
)
