"""Positions: one answer to "which rotary embedding?" for the learner, the engines and the export.

A YaRN without the model's own theta loads everywhere and is silently wrong, because transformers
and vLLM then take the default of the architecture. So nobody writes these fields but this file.
"""

from __future__ import annotations

from typing import Any

from transformers import Qwen3Config

from trainer.contract.sections import ModelSpec
from trainer.errors import SpecError


def resolve_rope(config: Qwen3Config, model: ModelSpec) -> dict[str, Any]:
    """The fields of a Hugging Face config that decide on positions, complete in themselves.

    `{"rope_parameters": {...}, "max_position_embeddings": int}`: vLLM takes it as `hf_overrides`,
    `apply_rope` puts it into a config. The theta is the model's own, whatever the spec stretches.

    Raises:
        SpecError: the config names no theta, or a YaRN that it has already does not agree.
    """
    own = dict(config.rope_parameters or {})
    if "rope_theta" not in own:
        raise SpecError("the model's config has no rope_theta: its positions are unknown")
    if model.rope is None:
        return {
            "rope_parameters": own,
            "max_position_embeddings": int(config.max_position_embeddings),
        }
    original = model.rope.original_max_position_embeddings
    positions = own.get("original_max_position_embeddings", config.max_position_embeddings)
    stretched = "original_max_position_embeddings" in own
    if original > positions or (stretched and original != positions):
        raise SpecError(
            f"model.rope.original_max_position_embeddings is {original}, but the model was trained"
            f" with {positions} positions"
        )
    return {
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": own["rope_theta"],
            "factor": model.rope.factor,
            "original_max_position_embeddings": original,
        },
        "max_position_embeddings": int(original * model.rope.factor),
    }


def apply_rope(config: Qwen3Config, model: ModelSpec) -> Qwen3Config:
    """Put `resolve_rope` into `config`, in place, and return it."""
    for name, value in resolve_rope(config, model).items():
        setattr(config, name, value)
    return config
