"""Shapes of models for the estimate: layers, widths and parameter counts.

Legend: L layers, D hidden size, I intermediate size, Q query heads, K key/value heads, H head size,
V vocabulary.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

_HUB = re.compile(r"hf:Qwen/(Qwen3-[\w.]+?)(-Base)?@[0-9a-f]{40}")
_BUILTIN = "builtin:tiny-qwen3-"


class UnknownShape(Exception):
    """A model config lacks a size that the estimate needs, or is of another family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a Qwen3; all fields are counts."""

    num_layers: int
    hidden_size: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    is_tied: bool
    """True if the output head is the embedding."""
    num_positions: int | None = None
    """Longest sequence (tokens) without `model.rope`; None if unknown."""

    @property
    def query_width(self) -> int:
        """Q x H."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """K x H."""
        return self.num_kv_heads * self.head_dim

    @property
    def layer_parameters(self) -> int:
        """One layer: D Q H + 2 D K H + Q H D of attention, 3 D I of the MLP, 2 D + 2 H of norms.

        Source: `Qwen3DecoderLayer` of transformers 5.19, no biases.
        """
        attention = 2 * self.hidden_size * (self.query_width + self.kv_width)
        mlp = 3 * self.hidden_size * self.intermediate_size
        return attention + mlp + 2 * self.hidden_size + 2 * self.head_dim

    @property
    def embedding_parameters(self) -> int:
        """V x D; an untied head has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def root_parameters(self) -> int:
        """Everything outside of the layers: embedding, head, final norm."""
        return self.embedding_parameters * (1 if self.is_tied else 2) + self.hidden_size

    @property
    def num_parameters(self) -> int:
        """Number of parameters; tied ones count once."""
        return self.num_layers * self.layer_parameters + self.root_parameters

    def adapter_parameters(self, rank: int, modules: tuple[str, ...]) -> int:
        """Of LoRA: rank x (in + out) for each layer's targeted projections (arXiv:2106.09685)."""
        ends = {
            "q_proj": self.hidden_size + self.query_width,
            "k_proj": self.hidden_size + self.kv_width,
            "v_proj": self.hidden_size + self.kv_width,
            "o_proj": self.query_width + self.hidden_size,
            "gate_proj": self.hidden_size + self.intermediate_size,
            "up_proj": self.hidden_size + self.intermediate_size,
            "down_proj": self.intermediate_size + self.hidden_size,
        }
        return self.num_layers * rank * sum(ends[name] for name in modules)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Of an engine's cache: keys and values of every layer."""
        return 2 * self.num_layers * self.kv_width * dtype_bytes


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
    )


KNOWN: dict[str, ModelShape] = {
    "Qwen3-0.6B": _qwen3(28, 1024, 3072, 16, tied=True),
    "Qwen3-1.7B": _qwen3(28, 2048, 6144, 16, tied=True),
    "Qwen3-4B": _qwen3(36, 2560, 9728, 32, tied=True),
    "Qwen3-8B": _qwen3(36, 4096, 12_288, 32, tied=False),
    "Qwen3-14B": _qwen3(40, 5120, 17_408, 40, tied=False),
    "Qwen3-32B": _qwen3(64, 5120, 25_600, 64, tied=False),
}
"""The dense models that Qwen publishes on the hub, by their public configs."""
BASE_POSITIONS = 32_768
"""Positions of the Base models, which have the same shapes."""

TINY = ModelShape(
    num_layers=3,
    hidden_size=128,
    intermediate_size=384,
    num_heads=4,
    num_kv_heads=2,
    head_dim=32,
    vocab_size=2048,
    is_tied=True,
    num_positions=1024,
)
"""Both models shipped with Hillclimb."""


def shape_of(source: str) -> ModelShape | None:
    """Return the shape of `model.source`; None if only its config determines it."""
    if source.startswith(_BUILTIN):
        return TINY
    named = _HUB.fullmatch(source)
    shape = KNOWN.get(named[1]) if named else None
    if shape is None or named is None or not named[2]:
        return shape
    return replace(shape, num_positions=BASE_POSITIONS)


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape of a Hugging Face `config.json`.

    Raises:
        UnknownShape: the architecture is not Qwen3, or a size is missing or invalid.
    """
    if config.get("model_type") != "qwen3":
        raise UnknownShape(
            "only Qwen3 is estimated, and this config is of model_type"
            f" {config.get('model_type')!r}"
        )
    return ModelShape(
        num_layers=_count(config, "num_hidden_layers"),
        hidden_size=_count(config, "hidden_size"),
        intermediate_size=_count(config, "intermediate_size"),
        num_heads=_count(config, "num_attention_heads"),
        num_kv_heads=_count(config, "num_key_value_heads"),
        head_dim=_count(config, "head_dim"),
        vocab_size=_count(config, "vocab_size"),
        is_tied=bool(config.get("tie_word_embeddings", False)),
        num_positions=_count(config, "max_position_embeddings")
        if "max_position_embeddings" in config
        else None,
    )


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnknownShape(f"the config's {key} is {value!r}: a count of at least 1 is needed")
    return value
