"""Rule that experts have no adapters."""

from __future__ import annotations

from collections.abc import Sequence

ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
"""Layers that can have adapters where the MLPs are experts."""
_LINEAR_ATTENTION = ("in_proj_qkv", "in_proj_z", "out_proj")


def why_not_adapted(target_modules: Sequence[str]) -> str | None:
    """Return why a model with experts cannot have adapters at these layers; None if it can."""
    mixing = (*ATTENTION, *_LINEAR_ATTENTION)
    others = [each for each in target_modules if each not in mixing]
    if not others:
        return None
    return (
        f"learner.lora.target_modules names {', '.join(others)}, which in this model are layers of"
        " experts, and adapters of experts are not trained: set it to"
        f" [{', '.join(ATTENTION)}], or train all weights without learner.lora"
    )
