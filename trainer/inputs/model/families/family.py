"""Facts about a model family: its names, its projections, and the options that are refused.

All families have transformers' layout: `model.embed_tokens`, `model.layers`, `model.norm` and
`lm_head`, with `self_attn.{q,k,v,o}_proj` and `mlp.{gate,up,down}_proj` in a layer; a layer of
linear attention has `linear_attn` in place of `self_attn`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, cast

if TYPE_CHECKING:
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        PreTrainedConfig,
        Qwen2Config,
        Qwen2ForCausalLM,
        Qwen3_5ForCausalLM,
        Qwen3_5TextConfig,
        Qwen3Config,
        Qwen3ForCausalLM,
    )

CausalLM: TypeAlias = "LlamaForCausalLM | Qwen2ForCausalLM | Qwen3ForCausalLM | Qwen3_5ForCausalLM"
CausalLMConfig: TypeAlias = "LlamaConfig | Qwen2Config | Qwen3Config | Qwen3_5TextConfig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """A model family that engine and learner compute exactly."""

    name: str
    """For people."""
    model_type: str
    """In `config.json`."""
    architecture: str
    """Name of the class in transformers, in `config.json` and in vLLM."""
    has_projection_biases: bool
    """Queries, keys and values are projected with a bias."""
    has_head_norms: bool
    """Queries and keys are normalised per head before the rotation."""
    off: tuple[str, ...]
    """Options of the config that have to be off."""
    wrapped_in: str | None = None
    """`model_type` of checkpoints that hold more than text, and this family's config as their
    `text_config`."""
    has_linear_attention: bool = False
    """Some layers are gated delta nets; the others gate the output of their attention, rotate a
    part of each head, and all norms but the delta nets' own multiply by 1 + weight."""
    in_float32: tuple[str, ...] = ()
    """Last parts of the names of parameters that are never rounded."""

    @property
    def model_class(self) -> type[CausalLM]:
        """The class in transformers; imported when it is needed, which takes time."""
        import transformers  # noqa: PLC0415

        return cast("type[CausalLM]", getattr(transformers, self.architecture))

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
