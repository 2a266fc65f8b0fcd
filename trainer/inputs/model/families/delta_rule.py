"""The gated delta rule of linear attention in plain torch, for the torch engine and CPU learners.

Each value head has a state S of key size x value size. A token first decays it, then replaces what
S answers to the token's key by a share of the token's value, and reads it with the query:

    S := exp(g) S;   S := S + k (beta (v - k S));   o = q S / sqrt(K)

with queries and keys scaled to length 1. A token with k = v = 0, beta = 0 and g = 0 leaves S as it
is, so sequences may be padded at their ends. Everything is computed in float32.

Source: Yang, Kautz and Hatamizadeh 2024 (Gated Delta Networks, arXiv:2412.06464), in the chunked
form of transformers 5.19's `torch_chunk_gated_delta_rule`.
Legend: R sequences, T tokens, H value heads, K size of a key, V size of a value, C chunk.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

CHUNK = 64
"""Tokens whose mutual influence is solved at once."""
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaInputs:
    """Inputs of the rule per token: [R, T, H, ...], or [R, H, ...] of a single token."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    decay: torch.Tensor
    """g, at most 0; no last dimension."""
    beta: torch.Tensor
    """Between 0 and 1; no last dimension."""


def unit(x: torch.Tensor) -> torch.Tensor:
    """Scale the last dimension to length 1, in float32."""
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + _EPSILON)


def delta_step(inputs: DeltaInputs, state_RHKV: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule to one token per sequence; return outputs [R, H, V] and the new states."""
    query_RHK = unit(inputs.query) * inputs.query.shape[-1] ** -0.5
    key_RHK = unit(inputs.key)
    state_RHKV = state_RHKV * inputs.decay.float().exp()[..., None, None]
    known_RHV = torch.einsum("rhk,rhkv->rhv", key_RHK, state_RHKV)
    change_RHV = (inputs.value.float() - known_RHV) * inputs.beta.float().unsqueeze(-1)
    state_RHKV = state_RHKV + key_RHK.unsqueeze(-1) * change_RHV.unsqueeze(-2)
    return torch.einsum("rhk,rhkv->rhv", query_RHK, state_RHKV), state_RHKV


def delta_rule(
    inputs: DeltaInputs, state_RHKV: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply the rule to whole sequences that begin with `state_RHKV`, or with empty states.

    Return the outputs, [R, T, H, V] float32, and the states after the last tokens. Differentiable
    in everything, the states included.
    """
    num_tokens = inputs.key.shape[1]
    query, key, value = (_chunks(x) for x in (unit(inputs.query), unit(inputs.key), inputs.value))
    query = query * query.shape[-1] ** -0.5
    beta = _chunks(inputs.beta.unsqueeze(-1))
    # Logarithm of the decay from the beginning of the chunk to each token, [R, H, chunks, C].
    total = _chunks(inputs.decay.unsqueeze(-1)).squeeze(-1).cumsum(-1)
    later = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=key.device).triu(1)
    between = total.unsqueeze(-1) - total.unsqueeze(-2)
    between = between.masked_fill(later, -torch.inf).exp()
    # Within a chunk each change depends on the earlier ones: a unit lower triangular system.
    scaled_key = key * beta
    system = (scaled_key @ key.transpose(-1, -2)) * between
    right = torch.cat((value * beta, scaled_key * total.exp().unsqueeze(-1)), dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    changes, reads = torch.split(solved, [value.shape[-1], key.shape[-1]], dim=-1)
    within = (query @ key.transpose(-1, -2)) * between
    query = query * total.exp().unsqueeze(-1)
    written_key = key * (total[..., -1:] - total).exp().unsqueeze(-1)
    over_chunk = total[..., -1].exp()[..., None, None]
    state = key.new_zeros(*key.shape[:2], key.shape[-1], value.shape[-1])
    state = state if state_RHKV is None else state_RHKV.float()
    outputs = []
    for at in range(key.shape[2]):
        change = changes[:, :, at] - reads[:, :, at] @ state
        outputs.append(query[:, :, at] @ state + within[:, :, at] @ change)
        state = state * over_chunk[:, :, at] + written_key[:, :, at].transpose(-1, -2) @ change
    output_RHTV = torch.stack(outputs, dim=2).flatten(2, 3)[:, :, :num_tokens]
    return output_RHTV.transpose(1, 2), state


def _chunks(x_RTHx: torch.Tensor) -> torch.Tensor:
    """Return [R, H, chunks, C, ...] float32, padded at the end with zeros."""
    x = x_RTHx.float().transpose(1, 2)
    x = F.pad(x, (0, 0, 0, -x.shape[2] % CHUNK))
    return x.view(*x.shape[:2], -1, CHUNK, x.shape[3])
