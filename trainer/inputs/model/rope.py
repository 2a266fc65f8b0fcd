"""Rotary embedding of a model: the same for learner, engines and export.

A YaRN without the model's own theta loads everywhere and is silently wrong, because transformers
and vLLM then take the default of the architecture. So only this file writes these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.spec.training.model import ModelSpec
from trainer.errors import SpecError
from trainer.inputs.model.families.family import CausalLMConfig

_NO_THETA = "the model's config has no rope_theta: its positions are unknown"


def check_theta(raw: Mapping[str, Any]) -> None:
    """Check that the raw `config.json` has the model's own theta.

    transformers fills in a default where there is none, so its config cannot tell.

    Raises:
        SpecError: it has none.
    """
    # Models of text and images keep what concerns text in a section of its own.
    text = raw.get("text_config") or raw
    places = (text, text.get("rope_parameters"), text.get("rope_scaling"))
    if not any(place and place.get("rope_theta") is not None for place in places):
        raise SpecError(_NO_THETA)


def resolve_rope(config: CausalLMConfig, model: ModelSpec) -> dict[str, Any]:
    """Return the config fields that determine the positions, complete in themselves.

    `{"rope_parameters": {...}, "max_position_embeddings": int}`: vLLM takes it as `hf_overrides`,
    `apply_rope` puts it into a config. The theta is always the model's own, and so are all other
    settings of its own YaRN.

    Raises:
        SpecError: the config names no theta, or it stretches the positions already, and otherwise.
    """
    own = dict(config.rope_parameters or {})
    if "rope_theta" not in own:
        raise SpecError(_NO_THETA)
    if model.rope is None:
        return {
            "rope_parameters": own,
            "max_position_embeddings": int(config.max_position_embeddings),
        }
    if "mrope_section" in own:
        raise SpecError(
            "model.rope asks for YaRN, which was never computed with positions in three parts"
            " (mrope_section), as this model has them: leave model.rope out"
        )
    stretched = _is_yarn(own)
    if stretched and own.get("factor") != model.rope.factor:
        raise SpecError(
            f"model.rope.factor is {model.rope.factor:g}, but the model's own YaRN stretches its"
            f" positions by {own.get('factor')}: ask for that, or leave model.rope out"
        )
    original = model.rope.original_max_position_embeddings
    positions = own.get("original_max_position_embeddings", config.max_position_embeddings)
    if original > positions or (stretched and original != positions):
        raise SpecError(
            f"model.rope.original_max_position_embeddings is {original}, but the model was trained"
            f" with {positions} positions"
        )
    return {
        "rope_parameters": own
        | {
            "rope_type": "yarn",
            "factor": model.rope.factor,
            "original_max_position_embeddings": original,
        },
        "max_position_embeddings": int(original * model.rope.factor),
    }


def apply_rope(config: CausalLMConfig, model: ModelSpec) -> CausalLMConfig:
    """Put `resolve_rope` into `config`, in place, and return it."""
    for name, value in resolve_rope(config, model).items():
        setattr(config, name, value)
    return config


def _is_yarn(own: Mapping[str, Any]) -> bool:
    """Tell whether the model has a YaRN of its own, or positions as they are.

    Raises:
        SpecError: it stretches them in another way.
    """
    kind = own.get("rope_type", "default")
    if kind not in ("default", "yarn"):
        raise SpecError(
            f"model.rope asks for YaRN, but the model's own positions are of rope_type {kind}:"
            " leave model.rope out"
        )
    return bool(kind == "yarn")
