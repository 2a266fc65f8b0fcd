"""The supported families as plain tensor code over packed tokens, for sampling only.

Independent of transformers on purpose: no padding, fused projections, and the caller decides what
each token attends to. A test compares it with transformers.

Legend: N packed tokens, D hidden size, Q query heads, K key/value heads, H head size, V vocabulary;
Q' is 2 Q where a family gates the output of its attention, and Q elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from trainer.engines.torch.delta_net import DeltaNet, Recur
from trainer.engines.torch.mlp import DenseMlp, ExpertMlp, Mlp, SharedMlp
from trainer.errors import EngineError
from trainer.inputs.model.families.delta_sizes import DeltaSizes
from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLMConfig, head_dim
from trainer.inputs.model.families.registry import check_supported, experts_of, family_of

if TYPE_CHECKING:
    from transformers import Qwen3_5TextConfig


class Attend(Protocol):
    """Attention of a layer's new tokens over the positions that they may see."""

    def __call__(
        self, layer: int, q_NQH: torch.Tensor, k_NKH: torch.Tensor, v_NKH: torch.Tensor
    ) -> torch.Tensor:
        """Return the attention output, [N, Q, H]."""
        ...


@dataclass(frozen=True, slots=True)
class _HeadNorms:
    """Norms of queries and keys per head."""

    q_H: torch.Tensor
    k_H: torch.Tensor
    qk: torch.Tensor
    """Both repeated per head, [Q + K, H]; `load` refreshes it."""


@dataclass(frozen=True, slots=True)
class _Attention:
    """Weights of full attention; projections are [outputs, inputs]."""

    qkv: torch.Tensor
    """Queries (with their gates, head by head), keys and values, [(Q' + 2 K) H, D]."""
    qkv_bias: torch.Tensor | None
    """[(Q' + 2 K) H], of families that have it."""
    norms: _HeadNorms | None
    """Of queries and keys, in families that have them."""
    out: torch.Tensor
    """[D, Q H]."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer; F is the width of the MLP."""

    norm_D: torch.Tensor
    mixer: _Attention | DeltaNet
    mlp_norm_D: torch.Tensor
    mlp: Mlp


class Decoder:
    """Weights of one model and its forward pass.

    The head has its own tensor even where it is tied to the embedding, so that a weight sync
    compares every tensor that the learner sends.
    """

    def __init__(self, config: CausalLMConfig, *, max_length: int, device: torch.device) -> None:
        """Allocate weights (zeros until `load`) and rotary tables for `max_length` positions."""
        check_supported(config)
        self._family = family_of(config)
        self.num_layers: int = config.num_hidden_layers
        self.num_heads: int = config.num_attention_heads
        self.num_kv_heads: int = config.num_key_value_heads or config.num_attention_heads
        self.head_dim: int = head_dim(config)
        self._gates = 2 if self._family.has_linear_attention else 1
        self.delta_sizes = DeltaSizes.of(config) if self._family.has_linear_attention else None
        """Sizes of the layers of linear attention, where there are any."""
        kinds = getattr(config, "layer_types", None) or []
        linear = [kind == "linear_attention" for kind in kinds] or [False] * self.num_layers
        self.num_attention_layers = self.num_layers - sum(linear)
        """Layers with keys and values."""
        self._eps: float = config.rms_norm_eps
        self._targets: dict[str, torch.Tensor] = {}
        hidden, vocab = config.hidden_size, config.vocab_size
        self.device = device
        self._embed_VD = self._new("model.embed_tokens.weight", vocab, hidden)
        self._head_VD = self._new("lm_head.weight", vocab, hidden)
        self._norm_D = self._new("model.norm.weight", hidden)
        experts = experts_of(config)
        self._layers = [
            self._new_layer(
                f"model.layers.{index}.",
                hidden,
                self._new_delta_net(f"model.layers.{index}.linear_attn.", hidden)
                if is_linear
                else self._new_attention(f"model.layers.{index}.self_attn.", hidden),
                self._new_experts(f"model.layers.{index}.mlp.", hidden, experts)
                if experts is not None and index in experts.layers
                else self._new_dense(
                    f"model.layers.{index}.mlp.", hidden, config.intermediate_size
                ),
            )
            for index, is_linear in enumerate(linear)
        ]
        self._cos, self._sin = _rotary_tables(config, max_length, device)

    @property
    def names(self) -> Collection[str]:
        """Hugging Face names of all weights."""
        return self._targets.keys()

    def loaded(self, like: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the decoder's copies of the tensors in `like`, in the precision of `like`."""
        for name, tensor in like.items():
            yield name, self._targets[name].to(tensor.dtype)

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Overwrite the named weights (Hugging Face names); all others stay.

        Raises:
            EngineError: a name is unknown or a shape differs.
        """
        for name, tensor in weights.items():
            target = self._targets.get(name)
            if target is None or target.shape != tensor.shape:
                raise EngineError(f"the model has no weight {name} of shape {list(tensor.shape)}")
            target.copy_(tensor.detach())
        # `qk` holds copies, not views: the loaded norms must be written into it again.
        for layer in self._layers:
            if isinstance(layer.mixer, _Attention) and layer.mixer.norms is not None:
                norms = layer.mixer.norms
                norms.qk[: self.num_heads] = self._scale(norms.q_H)
                norms.qk[self.num_heads :] = self._scale(norms.k_H)

    def hidden(
        self,
        token_ids_N: torch.Tensor,
        positions_N: torch.Tensor,
        attend: Attend,
        recur: Recur | None = None,
        routes_NLK: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the final hidden states, [N, D], of packed tokens at `positions_N`.

        Layers of `attend` and `recur` are numbered by kind; only `delta_sizes` needs the latter.
        The experts of each token are written into `routes_NLK` (L layers, K experts of a token).
        """
        x = F.embedding(token_ids_N, self._embed_VD)
        cos, sin = self._cos[positions_N].unsqueeze(1), self._sin[positions_N].unsqueeze(1)
        num_attended = 0
        for index, layer in enumerate(self._layers):
            normed = self._rms(x, layer.norm_D)
            if isinstance(layer.mixer, DeltaNet):
                assert recur is not None
                x = x + layer.mixer(index - num_attended, normed, recur)
            else:
                q, k, v, gate = self._project(layer.mixer, normed, cos, sin)
                mixed = attend(num_attended, q, k, v)
                mixed = mixed if gate is None else mixed * gate.sigmoid()
                x = x + F.linear(mixed.reshape(len(x), -1), layer.mixer.out)
                num_attended += 1
            routes_NK = None if routes_NLK is None else routes_NLK[:, index]
            x = x + layer.mlp(self._rms(x, layer.mlp_norm_D), routes_NK)
        return self._rms(x, self._norm_D)

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Compute the next-token logits, [N, V]."""
        return F.linear(hidden_ND, self._head_VD)

    def _project(
        self, layer: _Attention, x_ND: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Return queries [N, Q, H], keys and values [N, K, H]; the first two rotated.

        And the gates of the output, [N, Q, H], of families that have them.

        One product for all three, and one norm and rotation for queries and keys together: on small
        models the number of operations costs more than their size.
        """
        heads, kv_heads = self.num_heads, self.num_kv_heads
        fused = F.linear(x_ND, layer.qkv, layer.qkv_bias)
        fused = fused.view(len(x_ND), self._gates * heads + 2 * kv_heads, self.head_dim)
        gate, qk = None, fused[:, : heads + kv_heads]
        if self._gates > 1:
            gated = fused[:, : 2 * heads].view(len(x_ND), heads, 2, self.head_dim)
            query, gate = gated.unbind(2)
            qk = torch.cat((query, fused[:, 2 * heads : 2 * heads + kv_heads]), dim=1)
        if layer.norms is not None:
            qk = F.rms_norm(qk, (self.head_dim,), eps=self._eps) * layer.norms.qk
        # Rotary embedding in the half-split layout of all families: (x1, x2) -> (-x2, x1). Some
        # rotate a part of each head only, the first one.
        turned, still = qk[..., : cos.shape[-1]], qk[..., cos.shape[-1] :]
        first, second = turned.chunk(2, dim=-1)
        turned = turned * cos + torch.cat((-second, first), dim=-1) * sin
        qk = torch.cat((turned, still), dim=-1) if still.shape[-1] else turned
        return qk[:, :heads], qk[:, heads:], fused[:, -kv_heads:], gate

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, self._scale(weight), self._eps)

    def _scale(self, weight: torch.Tensor) -> torch.Tensor:
        """Return what a norm multiplies by."""
        return weight + 1.0 if self._family.has_linear_attention else weight

    def _new(self, name: str, *shape: int) -> torch.Tensor:
        tensor = torch.zeros(shape, device=self.device)
        self._targets[name] = tensor
        return tensor

    def _new_dense(self, prefix: str, hidden: int, width: int) -> DenseMlp:
        gate_up = torch.zeros(2 * width, hidden, device=self.device)
        # `load` writes into views of the fused matrix, under the names of the single ones.
        self._targets |= {
            f"{prefix}gate_proj.weight": gate_up[:width],
            f"{prefix}up_proj.weight": gate_up[width:],
        }
        return DenseMlp(gate_up, self._new(f"{prefix}down_proj.weight", hidden, width))

    def _new_experts(self, prefix: str, hidden: int, layout: ExpertLayout) -> ExpertMlp:
        num, width, shared = layout.num, layout.width, None
        if layout.shared_width:
            shared = SharedMlp(
                self._new(f"{prefix}shared_expert_gate.weight", 1, hidden),
                self._new_dense(f"{prefix}shared_expert.", hidden, layout.shared_width),
            )
        return ExpertMlp(
            layout,
            self._new(f"{prefix}gate.weight", num, hidden),
            self._new(f"{prefix}experts.gate_up_proj", num, 2 * width, hidden),
            self._new(f"{prefix}experts.down_proj", num, hidden, width),
            shared,
        )

    def _new_layer(
        self, prefix: str, hidden: int, mixer: _Attention | DeltaNet, mlp: Mlp
    ) -> _Layer:
        return _Layer(
            norm_D=self._new(f"{prefix}input_layernorm.weight", hidden),
            mixer=mixer,
            mlp_norm_D=self._new(f"{prefix}post_attention_layernorm.weight", hidden),
            mlp=mlp,
        )

    def _new_attention(self, prefix: str, hidden: int) -> _Attention:
        heads, kv_heads, size = self.num_heads, self.num_kv_heads, self.head_dim
        rows = (self._gates * heads + 2 * kv_heads) * size
        qkv = torch.zeros(rows, hidden, device=self.device)
        self._split(prefix, "weight", qkv)
        bias = None
        if self._family.has_projection_biases:
            bias = torch.zeros(len(qkv), device=self.device)
            self._split(prefix, "bias", bias)
        return _Attention(
            qkv=qkv,
            qkv_bias=bias,
            norms=self._new_norms(prefix) if self._family.has_head_norms else None,
            out=self._new(f"{prefix}o_proj.weight", hidden, heads * size),
        )

    def _new_delta_net(self, prefix: str, hidden: int) -> DeltaNet:
        sizes = self.delta_sizes
        assert sizes is not None
        parts = {
            "in_proj_qkv": sizes.channels,
            "in_proj_z": sizes.values,
            "in_proj_b": sizes.value_heads,
            "in_proj_a": sizes.value_heads,
        }
        projections = torch.zeros(sum(parts.values()), hidden, device=self.device)
        views = torch.split(projections, list(parts.values()))
        self._targets |= {
            f"{prefix}{name}.weight": view for name, view in zip(parts, views, strict=True)
        }
        return DeltaNet(
            sizes=sizes,
            projections=projections,
            convolution=self._new(f"{prefix}conv1d.weight", sizes.channels, 1, sizes.width),
            decay_log_H=self._new(f"{prefix}A_log", sizes.value_heads),
            decay_bias_H=self._new(f"{prefix}dt_bias", sizes.value_heads),
            norm_V=self._new(f"{prefix}norm.weight", sizes.value_dim),
            out=self._new(f"{prefix}out_proj.weight", hidden, sizes.values),
            eps=self._eps,
        )

    def _new_norms(self, prefix: str) -> _HeadNorms:
        size = self.head_dim
        return _HeadNorms(
            q_H=self._new(f"{prefix}q_norm.weight", size),
            k_H=self._new(f"{prefix}k_norm.weight", size),
            qk=torch.zeros(self.num_heads + self.num_kv_heads, size, device=self.device),
        )

    def _split(self, prefix: str, kind: str, fused: torch.Tensor) -> None:
        """Name the parts of queries, keys and values in a fused tensor."""
        counts = (self._gates * self.num_heads, *2 * (self.num_kv_heads,))
        sizes = [count * self.head_dim for count in counts]
        for part, view in zip("qkv", torch.split(fused, sizes), strict=True):
            self._targets[f"{prefix}{part}_proj.{kind}"] = view


def _rotary_tables(
    config: CausalLMConfig, max_length: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine from transformers' own rope (YaRN included), [max_length, H] each.

    Of families that rotate a part of each head, [max_length, that part].
    """
    positions = torch.arange(max_length).unsqueeze(0)
    # The same code in every family; it reads the size of a head where a config has one.
    rope: torch.nn.Module = LlamaRotaryEmbedding(cast("LlamaConfig", config))
    if family_of(config).has_linear_attention:
        # Only models of this kind need it, and importing it takes a while.
        from transformers.models.qwen3_5.modeling_qwen3_5 import (  # noqa: PLC0415
            Qwen3_5TextRotaryEmbedding,
        )

        # Positions in three parts, for text all the same.
        rope = Qwen3_5TextRotaryEmbedding(cast("Qwen3_5TextConfig", config))
    cos, sin = rope(torch.zeros(1), positions)
    return cos[0].to(device), sin[0].to(device)
