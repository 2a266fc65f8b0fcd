"""Sizes of the layers of linear attention of a model.

Legend: G key heads, H value heads, K size of a key head, V of a value head, E channels of the
convolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from trainer.inputs.model.families.family import CausalLMConfig

if TYPE_CHECKING:
    from transformers import Qwen3_5TextConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSizes:
    """Sizes of the delta nets of a model; all counts."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int
    """Tokens that the convolution sees."""

    @classmethod
    def of(cls, config: CausalLMConfig) -> DeltaSizes:
        """Read the sizes from a model's config."""
        own = cast("Qwen3_5TextConfig", config)
        return cls(
            key_heads=own.linear_num_key_heads,
            value_heads=own.linear_num_value_heads,
            key_dim=own.linear_key_head_dim,
            value_dim=own.linear_value_head_dim,
            width=own.linear_conv_kernel_dim,
        )

    @property
    def keys(self) -> int:
        """G x K."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """H x V."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values: E."""
        return 2 * self.keys + self.values
