"""Qwen3.5 and 3.6 with experts (35B-A3B and larger): the text half, an MLP shared by all tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLMConfig
from trainer.inputs.model.families.qwen3_5 import QWEN3_5

if TYPE_CHECKING:
    from transformers import Qwen3_5MoeTextConfig


def _experts(config: CausalLMConfig) -> ExpertLayout:
    """Read the layout as transformers' `Qwen3_5MoeSparseMoeBlock` does; every layer has one."""
    own = cast("Qwen3_5MoeTextConfig", config)
    return ExpertLayout(
        num=own.num_experts,
        per_token=own.num_experts_per_tok,
        width=own.moe_intermediate_size,
        normalises=True,
        layers=tuple(range(own.num_hidden_layers)),
        shared_width=own.shared_expert_intermediate_size,
    )


QWEN3_5_MOE = replace(
    QWEN3_5,
    name="Qwen3.5-MoE",
    model_type="qwen3_5_moe_text",
    architecture="Qwen3_5MoeForCausalLM",
    off=(*QWEN3_5.off, "output_router_logits"),
    experts=_experts,
)
