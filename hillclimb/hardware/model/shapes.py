"""Shapes of models for the estimate: layers, widths and parameter counts.

Legend: L layers, D hidden size, I intermediate size, Q query heads, K key/value heads, H head size,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UnknownShape(Exception):
    """A model config lacks a size that the estimate needs, or is of another family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a dense decoder; all fields are counts."""

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
    has_head_norms: bool = True
    """Queries and keys are normalised per head, as in Qwen3."""
    has_projection_biases: bool = False
    """Queries, keys and values have biases, as in Qwen2.5."""

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
        """One layer: D Q H + 2 D K H + Q H D of attention, 3 D I of the MLP, 2 D of norms.

        And 2 H of norms of heads, or Q H + 2 K H of biases, where a family has them. Source: the
        decoder layers of Qwen3, Qwen2 and Llama in transformers 5.19.
        """
        attention = 2 * self.hidden_size * (self.query_width + self.kv_width)
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size + 2 * self.head_dim * self.has_head_norms
        biases = (self.query_width + 2 * self.kv_width) * self.has_projection_biases
        return attention + mlp + norms + biases

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


FAMILIES: Mapping[str, Mapping[str, bool]] = {
    "qwen3": {"has_head_norms": True, "has_projection_biases": False},
    "qwen2": {"has_head_norms": False, "has_projection_biases": True},
    "llama": {"has_head_norms": False, "has_projection_biases": False},
}
"""Properties of the families that are trained, by `model_type`."""


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape of a Hugging Face `config.json`.

    Raises:
        UnknownShape: the family is not trained here, or a size is missing or invalid.
    """
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise UnknownShape(
            f"only {', '.join(FAMILIES)} are estimated, and this config is of model_type"
            f" {config.get('model_type')!r}"
        )
    num_layers, hidden = _count(config, "num_hidden_layers"), _count(config, "hidden_size")
    heads = _count(config, "num_attention_heads")
    return ModelShape(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=_count(config, "intermediate_size"),
        num_heads=heads,
        num_kv_heads=_count(config, "num_key_value_heads"),
        # Qwen3's is never that of the others: it has to say it.
        head_dim=_count(config, "head_dim")
        if "head_dim" in config or family["has_head_norms"]
        else hidden // heads,
        vocab_size=_count(config, "vocab_size"),
        is_tied=bool(config.get("tie_word_embeddings", False)),
        num_positions=_count(config, "max_position_embeddings")
        if "max_position_embeddings" in config
        else None,
        **family,
    )


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnknownShape(f"the config's {key} is {value!r}: a count of at least 1 is needed")
    return value
