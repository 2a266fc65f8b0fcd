"""The families that are supported, found by a model's config."""

from __future__ import annotations

from typing import cast

from trainer.errors import SpecError
from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLMConfig, Family
from trainer.inputs.model.families.llama import LLAMA
from trainer.inputs.model.families.qwen2 import QWEN2
from trainer.inputs.model.families.qwen3 import QWEN3
from trainer.inputs.model.families.qwen3_5 import QWEN3_5
from trainer.inputs.model.families.qwen3_5_moe import QWEN3_5_MOE
from trainer.inputs.model.families.qwen3_moe import QWEN3_MOE

FAMILIES = (QWEN3, QWEN2, LLAMA, QWEN3_MOE, QWEN3_5, QWEN3_5_MOE)


def family_of(config: object) -> Family:
    """Return the family of a config of transformers.

    Raises:
        SpecError: it is of no supported family.
    """
    kind = getattr(config, "model_type", None)
    for family in FAMILIES:
        if family.model_type == kind:
            return family
    names = ", ".join(family.name for family in FAMILIES)
    raise SpecError(f"models of type {kind} are not supported; these families are: {names}")


def experts_of(config: CausalLMConfig) -> ExpertLayout | None:
    """Return the experts of a model; None of a dense one."""
    read = family_of(config).experts
    layout = read(config) if read is not None else None
    return layout if layout is not None and layout.layers else None


def check_supported(config: object) -> CausalLMConfig:
    """Return `config` when engine and learner compute its model exactly.

    Raises:
        SpecError: another architecture, or an option that is not built in.
    """
    family, supported = family_of(config), cast("CausalLMConfig", config)
    if why := family.why_refused(supported):
        raise SpecError(why)
    return supported
