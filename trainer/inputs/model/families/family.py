"""Facts about a model family: its names, its projections, and the options that are refused.

All families have transformers' layout: `model.embed_tokens`, `model.layers`, `model.norm` and
`lm_head`, with `self_attn.{q,k,v,o}_proj` in a layer, or `linear_attn` in one of linear attention,
and `mlp.{gate,up,down}_proj` or, in a layer with experts, `mlp.gate` and `mlp.experts`
(`ExpertLayout`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

from trainer.inputs.model.families.experts import ExpertLayout

if TYPE_CHECKING:
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedConfig,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3_5ForCausalLM,
        Qwen3_5MoeForCausalLM,
        Qwen3_5MoeTextConfig,
        Qwen3_5TextConfig,
        Qwen3Config,
        Qwen3ForCausalLM,
        Qwen3MoeConfig,
        Qwen3MoeForCausalLM,
    )

CausalLM: TypeAlias = (
    "LlamaForCausalLM | Qwen2ForCausalLM | Qwen3ForCausalLM | Qwen3MoeForCausalLM"
    " | Qwen3_5ForCausalLM | Qwen3_5MoeForCausalLM"
)
CausalLMConfig: TypeAlias = (
    "LlamaConfig | Qwen2Config | Qwen3Config | Qwen3MoeConfig | Qwen3_5TextConfig"
    " | Qwen3_5MoeTextConfig"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model family that engine and learner compute exactly."""

    name: str
    """For people."""
    model_type: str
    """In `config.json`."""
    architecture: str
    """Name of the class in `config.json` and in vLLM, and in transformers without `class_name`."""
    has_projection_biases: bool
    """Queries, keys and values are projected with a bias."""
    has_head_norms: bool
    """Queries and keys are normalised per head before the rotation."""
    off: tuple[str, ...]
    """Options of the config that have to be off."""
    class_name: str = ""
    """Name of the class in transformers, where it is another one than the architecture's."""
    mask_kinds: tuple[str, ...] = ("full_attention",)
    """Kinds of attention for which the model's forward would otherwise build a mask of its own."""
    experts: Callable[[CausalLMConfig], ExpertLayout] | None = None
    """Reads the experts of a model from its config; None in dense families."""
    has_linear_attention: bool = False
    """Some layers are gated delta nets; the others gate the output of their attention, rotate a
    part of each head, and all norms but the delta nets' own multiply by 1 + weight."""
    in_float32: tuple[str, ...] = ()
    """Last parts of the names of parameters that are never rounded."""

    @property
    def model_class(self) -> type[CausalLM]:
        """The class in transformers; imported when it is needed, which takes time."""
        import transformers  # noqa: PLC0415

        name = self.class_name or self.architecture
        return cast("type[CausalLM]", getattr(transformers, name))

    def why_refused(self, config: CausalLMConfig) -> str | None:
        """Return why the model of a config is not computed exactly here; None where it is."""
        on = [option for option in self.off if getattr(config, option)]
        if on:
            return f"{', '.join(on)} of {self.name}: not supported"
        if config.hidden_act != "silu":
            return f"hidden_act {config.hidden_act!r} is not supported: use silu"
        return None


def text_half(config: object) -> object:
    """Return the config of the text model in a config of text and images; any other as it is."""
    whole = cast("PreTrainedConfig", config)
    return whole.get_text_config() if hasattr(whole, "text_config") else config


def head_dim(config: CausalLMConfig) -> int:
    """Return the size of an attention head; Qwen2's config has none of its own."""
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)
