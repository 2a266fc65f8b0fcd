"""Qwen3 with experts (Qwen3-30B-A3B, Qwen3-235B-A22B): attention of Qwen3, MLPs of experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLMConfig, Family

if TYPE_CHECKING:
    from transformers import Qwen3MoeConfig


def _experts(config: CausalLMConfig) -> ExpertLayout:
    """Read the layout as transformers' `Qwen3MoeDecoderLayer` does."""
    own = cast("Qwen3MoeConfig", config)
    dense = own.mlp_only_layers or ()
    return ExpertLayout(
        num=own.num_experts,
        per_token=own.num_experts_per_tok,
        width=own.moe_intermediate_size,
        normalises=own.norm_topk_prob,
        layers=tuple(
            index
            for index in range(own.num_hidden_layers)
            if index not in dense and (index + 1) % own.decoder_sparse_step == 0
        ),
    )


QWEN3_MOE = Family(
    name="Qwen3-MoE",
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    has_projection_biases=False,
    has_head_norms=True,
    off=("attention_bias", "use_sliding_window", "attention_dropout", "output_router_logits"),
    experts=_experts,
)
