"""Shapes of published models by their names on the hub, from their public configs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from hillclimb.hardware.model.shapes import (
    FAMILIES,
    TINY,
    ExpertShape,
    LinearShape,
    ModelShape,
)

HUB = re.compile(r"hf:([\w.-]+/[\w.-]+)@[0-9a-f]{40}")
_BUILTIN = "builtin:tiny-qwen3-"


def _qwen3(layers: int, hidden: int, intermediate: int, heads: int, *, tied: bool) -> ModelShape:
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=8,
        head_dim=128,
        vocab_size=151_936,
        is_tied=tied,
        num_positions=40_960,
        experts=None,
        **FAMILIES["qwen3"],
    )


def _qwen3_moe(layers: int, hidden: int, intermediate: int, heads: int, width: int) -> ModelShape:
    """Return the shape of a Qwen3 with 128 experts in every layer, 8 of them for a token."""
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=4,
        head_dim=128,
        vocab_size=151_936,
        is_tied=False,
        num_positions=40_960,
        experts=ExpertShape(num=128, per_token=8, width=width, num_layers=layers),
        **FAMILIES["qwen3_moe"],
    )


def _qwen3_5(
    layers: int, hidden: int, intermediate: int, heads: tuple[int, int], values: int, *, tied: bool
) -> ModelShape:
    """Return the shape of the text model of a Qwen3.5 or 3.6, `values` heads in its delta nets.

    Sizes as public training recipes have them (slime and Miles, `scripts/models`), and heads of
    delta nets by transformers' defaults; for 27B they give the 26.9e9 parameters of its name.
    """
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=256,
        vocab_size=248_320,
        is_tied=tied,
        num_positions=262_144,
        linear=LinearShape(
            num_layers=layers // 4 * 3,
            key_heads=16,
            value_heads=values,
            key_dim=128,
            value_dim=128,
            width=4,
        ),
        **FAMILIES["qwen3_5_text"],
    )


_QWEN3_5_27B = _qwen3_5(64, 5120, 17_408, (24, 4), 48, tied=False)
_QWEN3_5_35B_A3B = replace(
    _qwen3_5(40, 2048, 0, (16, 2), 32, tied=False),
    experts=ExpertShape(num=256, per_token=8, width=512, num_layers=40, shared_width=512),
)


def _qwen2(layers: int, hidden: int, intermediate: int, heads: tuple[int, int]) -> ModelShape:
    """Return the shape of a Qwen2.5; those above 3B have a head and a padded vocabulary."""
    is_tied = hidden <= 2048
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads[0],
        num_kv_heads=heads[1],
        head_dim=hidden // heads[0],
        vocab_size=151_936 if is_tied else 152_064,
        is_tied=is_tied,
        num_positions=32_768,
        experts=None,
        **FAMILIES["qwen2"],
    )


def _llama(layers: int, hidden: int, intermediate: int, heads: int, *, tied: bool) -> ModelShape:
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_heads=heads,
        num_kv_heads=8,
        head_dim=hidden // heads,
        vocab_size=128_256,
        is_tied=tied,
        num_positions=131_072,
        experts=None,
        **FAMILIES["llama"],
    )


KNOWN: Mapping[str, ModelShape] = {
    "Qwen3-0.6B": _qwen3(28, 1024, 3072, 16, tied=True),
    "Qwen3-1.7B": _qwen3(28, 2048, 6144, 16, tied=True),
    "Qwen3-4B": _qwen3(36, 2560, 9728, 32, tied=True),
    "Qwen3-8B": _qwen3(36, 4096, 12_288, 32, tied=False),
    "Qwen3-14B": _qwen3(40, 5120, 17_408, 40, tied=False),
    "Qwen3-32B": _qwen3(64, 5120, 25_600, 64, tied=False),
    "Qwen3-30B-A3B": _qwen3_moe(48, 2048, 6144, 32, 768),
    "Qwen3-235B-A22B": _qwen3_moe(94, 4096, 12_288, 64, 1536),
    "Qwen3.5-4B": _qwen3_5(32, 2560, 9216, (16, 4), 32, tied=True),
    "Qwen3.5-9B": _qwen3_5(32, 4096, 12_288, (16, 4), 32, tied=False),
    "Qwen3.5-27B": _QWEN3_5_27B,
    "Qwen3.6-27B": _QWEN3_5_27B,
    "Qwen3.5-35B-A3B": _QWEN3_5_35B_A3B,
    "Qwen3.6-35B-A3B": _QWEN3_5_35B_A3B,
    "Qwen2.5-0.5B": _qwen2(24, 896, 4864, (14, 2)),
    "Qwen2.5-1.5B": _qwen2(28, 1536, 8960, (12, 2)),
    "Qwen2.5-3B": _qwen2(36, 2048, 11_008, (16, 2)),
    "Qwen2.5-7B": _qwen2(28, 3584, 18_944, (28, 4)),
    "Qwen2.5-14B": _qwen2(48, 5120, 13_824, (40, 8)),
    "Qwen2.5-32B": _qwen2(64, 5120, 27_648, (40, 8)),
    "Qwen2.5-72B": _qwen2(80, 8192, 29_568, (64, 8)),
    "Llama-3.2-1B": _llama(16, 2048, 8192, 32, tied=True),
    "Llama-3.2-3B": _llama(28, 3072, 8192, 24, tied=True),
    "Llama-3.1-8B": _llama(32, 4096, 14_336, 32, tied=False),
    "Llama-3.1-70B": _llama(80, 8192, 28_672, 64, tied=False),
    "Llama-3.3-70B": _llama(80, 8192, 28_672, 64, tied=False),
}
"""By name without its organisation and without `-Instruct`, `-Thinking` or `-Base`."""
BASE_POSITIONS = 32_768
"""Positions of Qwen3's Base models, which have the same shapes."""
_ORGANISATIONS = ("Qwen/", "meta-llama/")
_VARIANT = re.compile(r"-(Base|Instruct|Thinking)(-2507)?$")
_LATER = "-2507"
"""Versions of Qwen3 with positions of another number."""


def hub_name(source: str) -> str | None:
    """Return `ORG/NAME` of a model of the hub; None for another source."""
    named = HUB.fullmatch(source)
    return None if named is None else named[1]


def shape_of(source: str) -> ModelShape | None:
    """Return the shape of `model.source`; None if only its config determines it."""
    if source.startswith(_BUILTIN):
        return TINY
    name = hub_name(source) or ""
    organisation = next((each for each in _ORGANISATIONS if name.startswith(each)), None)
    if organisation is None:
        return None
    short = _VARIANT.sub("", name.removeprefix(organisation))
    shape = KNOWN.get(short)
    if shape is None:
        return None
    if name.endswith(_LATER) or (shape.linear is not None and name.endswith("-Base")):
        return replace(shape, num_positions=None)
    if shape.has_head_norms:
        return replace(shape, num_positions=BASE_POSITIONS) if name.endswith("-Base") else shape
    # Base models of Qwen2.5 have positions of several numbers: only their config says which.
    is_base = shape.has_projection_biases and not name.endswith("-Instruct")
    return replace(shape, num_positions=None) if is_base else shape
