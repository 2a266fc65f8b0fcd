"""A start from which copying is learned in tens of steps.

Gradient descent finds an induction circuit (Olsson et al., arXiv:2209.11895) by itself, but takes
most of a small budget to do so. Hence attention starts close to one: values and outputs copy (the
"mimetic" start of Trockman and Kolter, arXiv:2305.09828), one head of the first layer looks one
token back, and one of the second looks for what followed the current token.
"""

from __future__ import annotations

import torch
from transformers import Qwen3ForCausalLM
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention

_FAST_GAIN = 2.0
_MATCH_GAIN = 2.0
_QUIET = 0.25
"""Scale of what the first layer writes, so that the current token stays readable after it."""


@torch.no_grad()
def start_near_induction(model: Qwen3ForCausalLM) -> None:
    """Change freshly initialised weights in place; two layers or more."""
    constant = _share_a_constant(model)
    for layer in model.model.layers:
        _copy_what_is_attended(layer.self_attn, constant)
    _look_back_then_match(model, constant)


def _share_a_constant(model: Qwen3ForCausalLM) -> torch.Tensor:
    """Add one vector to all embeddings, for position-only attention; return its direction [d].

    Tied output logits all move by the same amount, so no prediction changes.
    """
    weight = model.model.embed_tokens.weight
    direction = torch.nn.functional.normalize(torch.randn(weight.shape[1]), dim=0)
    weight.add_(direction * weight.norm(dim=1).mean())
    return direction


def _columns_apart_from(used: torch.Tensor, count: int) -> torch.Tensor:
    """Random orthonormal columns [d, count], all orthogonal to the columns `used` [d, n]."""
    draws = torch.cat([used, torch.randn(used.shape[0], count)], dim=1)
    basis: torch.Tensor = torch.linalg.qr(draws)[0]
    return basis[:, used.shape[1] :]


def _copy_what_is_attended(attention: Qwen3Attention, constant: torch.Tensor) -> None:
    """Make outputs the transpose of values, so that a head writes what it attends to."""
    rows, width = attention.v_proj.weight.shape
    basis = _columns_apart_from(constant[:, None], rows)
    attention.v_proj.weight.copy_(basis.T)
    shared = attention.num_key_value_groups
    heads = basis.reshape(width, rows // attention.head_dim, attention.head_dim)
    spread = heads.repeat_interleave(shared, dim=1) / shared
    attention.o_proj.weight.copy_(spread.reshape(width, -1))


def _look_back_then_match(model: Qwen3ForCausalLM, constant: torch.Tensor) -> None:
    """Head 0 of layer 0 attends one token back, head 0 of layer 1 to what followed its like.

    Rotary pairs are (k, k + half) with frequency theta^(-k / half): the fast ones tell neighbours
    apart, the slow ones leave a match of contents alone over any distance.
    """
    first, second = (layer.self_attn for layer in model.model.layers[:2])
    size = first.head_dim
    half, num_fast = size // 2, size // 8
    fast = torch.zeros(size)
    fast[:num_fast] = 1.0
    turn = model.model.rotary_emb.inv_freq
    back = torch.zeros(size)
    back[:half] = fast[:half] * torch.cos(turn)
    back[half:] = -fast[:half] * torch.sin(turn)
    first.k_proj.weight[:size] = torch.outer(fast, constant)
    first.q_proj.weight[:size] = torch.outer(back, constant)
    gain = torch.ones(size)
    gain[:num_fast] = gain[half : half + num_fast] = _FAST_GAIN
    first.q_norm.weight.copy_(gain)
    first.k_norm.weight.copy_(gain)

    read = first.v_proj.weight[:size].clone()
    written = _columns_apart_from(
        torch.cat([constant[:, None], first.v_proj.weight.T], dim=1), size
    )
    first.o_proj.weight.mul_(_QUIET)
    first.o_proj.weight[:, :size] = written * _QUIET
    model.model.layers[0].mlp.down_proj.weight.mul_(_QUIET)
    slow = torch.ones(size)
    slow[:num_fast] = slow[half : half + num_fast] = 0.0
    second.q_proj.weight[:size] = slow[:, None] * read
    second.k_proj.weight[:size] = slow[:, None] * written.T
    second.q_norm.weight.fill_(_MATCH_GAIN)
    second.k_norm.weight.fill_(_MATCH_GAIN)
