"""The supported families as plain tensor code over packed tokens, for sampling only.

Independent of transformers on purpose: no padding, fused projections, and the caller decides what
each token attends to. A test compares it with transformers.

Legend: N packed tokens, D hidden size, Q query heads, K key/value heads, H head size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from trainer.engines.torch.mlp import DenseMlp, ExpertMlp, Mlp
from trainer.errors import EngineError
from trainer.inputs.model.families.experts import ExpertLayout
from trainer.inputs.model.families.family import CausalLMConfig, head_dim
from trainer.inputs.model.families.registry import check_supported, experts_of, family_of


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
class _Layer:
    """Weights of one layer; projections are [outputs, inputs]."""

    norm_D: torch.Tensor
    qkv: torch.Tensor
    """Queries, keys and values in one product, [(Q + 2 K) H, D]."""
    qkv_bias: torch.Tensor | None
    """[(Q + 2 K) H], of families that have it."""
    norms: _HeadNorms | None
    """Of queries and keys, in families that have them."""
    out: torch.Tensor
    """[D, Q H]."""
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
                self._new_experts(f"model.layers.{index}.mlp.", hidden, experts)
                if experts is not None and index in experts.layers
                else self._new_dense(
                    f"model.layers.{index}.mlp.", hidden, config.intermediate_size
                ),
            )
            for index in range(self.num_layers)
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
            if layer.norms is not None:
                layer.norms.qk[: self.num_heads] = layer.norms.q_H
                layer.norms.qk[self.num_heads :] = layer.norms.k_H

    def hidden(
        self,
        token_ids_N: torch.Tensor,
        positions_N: torch.Tensor,
        attend: Attend,
        routes_NLK: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Compute the final hidden states, [N, D], of packed tokens at `positions_N`.

        The experts of each token are written into `routes_NLK` (L layers, K experts of a token).
        """
        x = F.embedding(token_ids_N, self._embed_VD)
        cos, sin = self._cos[positions_N].unsqueeze(1), self._sin[positions_N].unsqueeze(1)
        for index, layer in enumerate(self._layers):
            q, k, v = self._project(layer, x, cos, sin)
            mixed = attend(index, q, k, v)
            x = x + F.linear(mixed.reshape(len(x), -1), layer.out)
            routes_NK = None if routes_NLK is None else routes_NLK[:, index]
            x = x + layer.mlp(self._rms(x, layer.mlp_norm_D), routes_NK)
        return self._rms(x, self._norm_D)

    def logits(self, hidden_ND: torch.Tensor) -> torch.Tensor:
        """Compute the next-token logits, [N, V]."""
        return F.linear(hidden_ND, self._head_VD)

    def _project(
        self, layer: _Layer, x_ND: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return queries [N, Q, H], keys and values [N, K, H]; the first two rotated.

        One product for all three, and one norm and rotation for queries and keys together: on small
        models the number of operations costs more than their size.
        """
        heads, kv_heads = self.num_heads, self.num_kv_heads
        fused = F.linear(self._rms(x_ND, layer.norm_D), layer.qkv, layer.qkv_bias)
        fused = fused.view(len(x_ND), heads + 2 * kv_heads, self.head_dim)
        qk = fused[:, : heads + kv_heads]
        if layer.norms is not None:
            qk = F.rms_norm(qk, (self.head_dim,), eps=self._eps) * layer.norms.qk
        # Rotary embedding in the half-split layout of all families: (x1, x2) -> (-x2, x1).
        first, second = qk.chunk(2, dim=-1)
        qk = qk * cos + torch.cat((-second, first), dim=-1) * sin
        return qk[:, :heads], qk[:, heads:], fused[:, heads + kv_heads :]

    def _rms(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self._eps)

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
        num, width = layout.num, layout.width
        return ExpertMlp(
            layout,
            self._new(f"{prefix}gate.weight", num, hidden),
            self._new(f"{prefix}experts.gate_up_proj", num, 2 * width, hidden),
            self._new(f"{prefix}experts.down_proj", num, hidden, width),
        )

    def _new_layer(self, prefix: str, hidden: int, mlp: Mlp) -> _Layer:
        heads, kv_heads, size = self.num_heads, self.num_kv_heads, self.head_dim
        qkv = torch.zeros((heads + 2 * kv_heads) * size, hidden, device=self.device)
        self._split(prefix, "weight", qkv)
        bias = None
        if self._family.has_projection_biases:
            bias = torch.zeros(len(qkv), device=self.device)
            self._split(prefix, "bias", bias)
        return _Layer(
            norm_D=self._new(f"{prefix}input_layernorm.weight", hidden),
            qkv=qkv,
            qkv_bias=bias,
            norms=self._new_norms(prefix) if self._family.has_head_norms else None,
            out=self._new(f"{prefix}self_attn.o_proj.weight", hidden, heads * size),
            mlp_norm_D=self._new(f"{prefix}post_attention_layernorm.weight", hidden),
            mlp=mlp,
        )

    def _new_norms(self, prefix: str) -> _HeadNorms:
        size = self.head_dim
        return _HeadNorms(
            q_H=self._new(f"{prefix}self_attn.q_norm.weight", size),
            k_H=self._new(f"{prefix}self_attn.k_norm.weight", size),
            qk=torch.zeros(self.num_heads + self.num_kv_heads, size, device=self.device),
        )

    def _split(self, prefix: str, kind: str, fused: torch.Tensor) -> None:
        """Name the parts of queries, keys and values in a fused tensor."""
        sizes = [count * self.head_dim for count in (self.num_heads, *2 * (self.num_kv_heads,))]
        for part, view in zip("qkv", torch.split(fused, sizes), strict=True):
            self._targets[f"{prefix}self_attn.{part}_proj.{kind}"] = view


def _rotary_tables(
    config: CausalLMConfig, max_length: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine, [max_length, H] each, from transformers' own rope (YaRN included)."""
    positions = torch.arange(max_length).unsqueeze(0)
    # The same code in every family; it reads the size of a head where a config has one.
    cos, sin = LlamaRotaryEmbedding(cast("LlamaConfig", config))(torch.zeros(1), positions)
    return cos[0].to(device), sin[0].to(device)
