"""Shapes of models for the estimate: layers, widths and parameter counts.

Legend: L layers, D hidden size, I intermediate size, Q query heads, K key/value heads, H head size,
V vocabulary, E experts, J width of an expert. Of linear attention: G key heads, M value heads,
S size of a head of keys, T of values, W tokens that the convolution sees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict


class UnknownShape(Exception):
    """A model config lacks a size that the estimate needs, or is of another family."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertShape:
    """Experts of a model; all fields are counts."""

    num: int
    """Of a layer."""
    per_token: int
    """Experts that compute a token."""
    width: int
    """Of an expert's MLP."""
    num_layers: int
    """Layers that have experts; the others have a dense MLP."""
    shared_width: int = 0
    """Of an MLP that computes every token beside its experts; 0 where there is none."""

    def parameters(self, hidden_size: int, *, num: int) -> int:
        """Of a layer's router and `num` of its experts: E D + num 3 D J.

        And 3 D J' + D of a shared MLP of width J' and its gate.
        """
        experts = self.num * hidden_size + num * 3 * hidden_size * self.width
        shared = 3 * hidden_size * self.shared_width + hidden_size
        return experts + (shared if self.shared_width else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearShape:
    """Layers of linear attention (gated delta nets); all fields are counts."""

    num_layers: int
    """Layers of this kind; the others attend, and gate what they attend to."""
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int
    """Tokens that the convolution sees."""

    @property
    def values(self) -> int:
        """M T."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """Queries, keys and values: 2 G S + M T."""
        return 2 * self.key_heads * self.key_dim + self.values

    @property
    def state_numbers(self) -> int:
        """Of a sequence in one layer: M S T."""
        return self.value_heads * self.key_dim * self.value_dim

    def parameters(self, hidden_size: int) -> int:
        """One layer without norms over D and MLP.

        D (2 G S + 2 M T + 2 M) of projections, W (2 G S + M T) of the convolution, 2 M of the
        decay, T of the norm, M T D of the output. Source: `Qwen3_5GatedDeltaNet` of transformers
        5.19.
        """
        inputs = hidden_size * (self.channels + self.values + 2 * self.value_heads)
        own = self.width * self.channels + 2 * self.value_heads + self.value_dim
        return inputs + own + self.values * hidden_size


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Shape of a decoder; all fields are counts."""

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
    experts: ExpertShape | None = None
    """None: every layer has one MLP for all tokens."""
    linear: LinearShape | None = None
    """None: every layer attends to all tokens before."""

    @property
    def query_width(self) -> int:
        """Q x H."""
        return self.num_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """K x H."""
        return self.num_kv_heads * self.head_dim

    @property
    def num_attention_layers(self) -> int:
        """Layers with keys and values."""
        return self.num_layers - (0 if self.linear is None else self.linear.num_layers)

    @property
    def layer_parameters(self) -> int:
        """The largest layer: what has no MLP, and 3 D I of the MLP or all of a layer's experts.

        Source: the decoder layers of Qwen3, Qwen3-MoE, Qwen3.5, Qwen2 and Llama in transformers
        5.19.
        """
        return max(self._mixers()) + max(self._mlps(whole=True))

    def _mixers(self) -> list[int]:
        """Return the parameters of each layer without its MLP.

        D Q H + 2 D K H + Q H D of attention, 2 D of norms; 2 H of norms of heads, or Q H + 2 K H of
        biases, where a family has them; D Q H of gates beside linear attention.
        """
        norms = 2 * self.hidden_size
        attention = 2 * self.hidden_size * (self.query_width + self.kv_width)
        attention += norms + 2 * self.head_dim * self.has_head_norms
        attention += (self.query_width + 2 * self.kv_width) * self.has_projection_biases
        if self.linear is None:
            return [attention] * self.num_layers
        gated = attention + self.hidden_size * self.query_width
        linear = self.linear.parameters(self.hidden_size) + norms
        return [gated] * self.num_attention_layers + [linear] * self.linear.num_layers

    def _mlps(self, *, whole: bool) -> list[int]:
        """Return the parameters of each layer's MLP: all that it has, or those of one token."""
        experts = self.experts
        dense = 3 * self.hidden_size * self.intermediate_size
        if experts is None:
            return [dense] * self.num_layers
        num = experts.num if whole else experts.per_token
        sparse = experts.parameters(self.hidden_size, num=num)
        return [dense] * (self.num_layers - experts.num_layers) + [sparse] * experts.num_layers

    @property
    def embedding_parameters(self) -> int:
        """V x D; an untied head has as many."""
        return self.vocab_size * self.hidden_size

    @property
    def largest_tensor(self) -> int:
        """Of the embedding, or of gate and up projections of a layer's experts: E 2 J D."""
        experts = self.experts
        stacked = 0 if experts is None else experts.num * 2 * experts.width * self.hidden_size
        return max(self.embedding_parameters, stacked)

    @property
    def root_parameters(self) -> int:
        """Everything outside of the layers: embedding, head, final norm."""
        return self.embedding_parameters * (1 if self.is_tied else 2) + self.hidden_size

    @property
    def num_parameters(self) -> int:
        """Number of parameters; tied ones count once."""
        return self._parameters(whole=True)

    @property
    def active_parameters(self) -> int:
        """Those of them that one token needs: of experts only its own."""
        return self._parameters(whole=False)

    def _parameters(self, *, whole: bool) -> int:
        return sum(self._mixers()) + sum(self._mlps(whole=whole)) + self.root_parameters

    def adapter_parameters(self, rank: int, modules: tuple[str, ...]) -> int:
        """Of LoRA: rank x (in + out) for each layer's targeted projections (arXiv:2106.09685)."""
        gates = 1 if self.linear is None else 2
        attention = {
            "q_proj": self.hidden_size + gates * self.query_width,
            "k_proj": self.hidden_size + self.kv_width,
            "v_proj": self.hidden_size + self.kv_width,
            "o_proj": self.query_width + self.hidden_size,
        }
        mlp = {
            "gate_proj": self.hidden_size + self.intermediate_size,
            "up_proj": self.hidden_size + self.intermediate_size,
            "down_proj": self.intermediate_size + self.hidden_size,
        }
        linear: dict[str, int] = {}
        if self.linear is not None:
            linear = {
                "in_proj_qkv": self.hidden_size + self.linear.channels,
                "in_proj_z": self.hidden_size + self.linear.values,
                "out_proj": self.linear.values + self.hidden_size,
            }
        kinds = (
            (attention, self.num_attention_layers),
            (linear, self.num_layers - self.num_attention_layers),
            (mlp, self.num_layers),
        )
        return rank * sum(num * ends.get(name, 0) for ends, num in kinds for name in modules)

    def kv_bytes_per_token(self, dtype_bytes: int) -> int:
        """Of an engine's cache: keys and values of every layer that has them."""
        return 2 * self.num_attention_layers * self.kv_width * dtype_bytes

    def state_bytes(self, dtype_bytes: int) -> int:
        """Of a sequence of any length in an engine: states of linear attention.

        The state in float32 and the convolution's last W - 1 inputs, of each such layer. Source:
        vLLM 0.32, `MambaStateShapeCalculator.gated_delta_net_state_shape`.
        """
        if self.linear is None:
            return 0
        inputs = (self.linear.width - 1) * self.linear.channels * dtype_bytes
        return self.linear.num_layers * (4 * self.linear.state_numbers + inputs)


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


class FamilyProperties(TypedDict):
    """Fields of a `ModelShape` that a family determines."""

    has_head_norms: bool
    has_projection_biases: bool


FAMILIES: Mapping[str, FamilyProperties] = {
    "qwen3": {"has_head_norms": True, "has_projection_biases": False},
    "qwen3_moe": {"has_head_norms": True, "has_projection_biases": False},
    "qwen2": {"has_head_norms": False, "has_projection_biases": True},
    "llama": {"has_head_norms": False, "has_projection_biases": False},
    "qwen3_5_text": {"has_head_norms": True, "has_projection_biases": False},
    "qwen3_5_moe_text": {"has_head_norms": True, "has_projection_biases": False},
}
"""Properties of the families that are trained, by `model_type`."""
SPARSE = ("qwen3_moe", "qwen3_5_moe_text")
"""Families with experts."""
HYBRID = ("qwen3_5_text", "qwen3_5_moe_text")
"""Families with linear attention."""


def shape_of_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape of a Hugging Face `config.json`; of text and images the text model's.

    Raises:
        UnknownShape: the family is not trained here, or a size is missing or invalid.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping) and text.get("model_type") in FAMILIES:
        config = text
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise UnknownShape(
            f"only {', '.join(FAMILIES)} are estimated, and this config is of model_type"
            f" {config.get('model_type')!r}"
        )
    num_layers, hidden = _count(config, "num_hidden_layers"), _count(config, "hidden_size")
    heads = _count(config, "num_attention_heads")
    kind = str(config["model_type"])
    experts = _experts(config, num_layers) if kind in SPARSE else None
    # Some families have experts in every layer, and no width of another MLP.
    own_width = experts is None or experts.num_layers < num_layers or "intermediate_size" in config
    return ModelShape(
        num_layers=num_layers,
        hidden_size=hidden,
        intermediate_size=_count(config, "intermediate_size") if own_width else 0,
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
        experts=experts,
        linear=_linear(config, num_layers) if kind in HYBRID else None,
        **family,
    )


def _experts(config: Mapping[str, Any], num_layers: int) -> ExpertShape | None:
    """Return the experts of a config of Qwen3-MoE or Qwen3.5-MoE, as transformers reads it."""
    step, dense = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    sparse = [
        index for index in range(num_layers) if index not in dense and (index + 1) % step == 0
    ]
    if not sparse:
        return None
    # transformers writes the number of experts under the name that other families have.
    name = "num_experts" if "num_experts" in config else "num_local_experts"
    return ExpertShape(
        num=_count(config, name),
        per_token=_count(config, "num_experts_per_tok"),
        width=_count(config, "moe_intermediate_size"),
        num_layers=len(sparse),
        shared_width=_count(config, "shared_expert_intermediate_size")
        if config["model_type"] in HYBRID
        else 0,
    )


def _linear(config: Mapping[str, Any], num_layers: int) -> LinearShape:
    """Return the delta nets of a config of Qwen3.5; where it names no kinds of layers, 3 of 4."""
    kinds = config.get("layer_types")
    every = config.get("full_attention_interval") or 4
    if not isinstance(kinds, list):
        kinds = ["linear_attention" if (i + 1) % every else "" for i in range(num_layers)]
    return LinearShape(
        num_layers=kinds.count("linear_attention"),
        key_heads=_count(config, "linear_num_key_heads"),
        value_heads=_count(config, "linear_num_value_heads"),
        key_dim=_count(config, "linear_key_head_dim"),
        value_dim=_count(config, "linear_value_head_dim"),
        width=_count(config, "linear_conv_kernel_dim"),
    )


def _count(config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UnknownShape(f"the config's {key} is {value!r}: a count of at least 1 is needed")
    return value
