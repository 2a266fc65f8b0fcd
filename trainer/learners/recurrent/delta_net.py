"""Layers of linear attention over packed prefix groups: the gated delta net of the Qwen3.5 line.

transformers has no interface for this layer as it has for attention, and its own forward ignores
where a sequence of a packed stream ends: every branch would read the state of the one before. So
`prepare` replaces the layer's forward. A prompt is computed once; each of its branches begins with
the prompt's last state, and its convolution sees the prompt's last inputs.

Legend: N tokens of the stream, E channels of the convolution, W its width, H value heads, J first
tokens of runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MethodType
from typing import Any

import torch
import torch.nn.functional as F

from trainer.inputs.model.families.delta_rule import DeltaInputs
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.packing.packing import PrefixGroup
from trainer.learners.recurrent.layout import RecurrentLayout
from trainer.learners.recurrent.rule import mixed

DECAY = "hillclimb_decay"
"""Module around a layer's `A_log` and `dt_bias`, which stay float32 in a pass in bfloat16."""


class Decay(torch.nn.Module):
    """Decay of a layer's state at each token, with the two parameters that need float32."""

    def __init__(self, A_log: torch.nn.Parameter, dt_bias: torch.nn.Parameter) -> None:
        """Take over the parameters of a layer, [H] each."""
        super().__init__()
        self.A_log, self.dt_bias = A_log, dt_bias

    def forward(self, a_NH: torch.Tensor) -> torch.Tensor:
        """Compute the logarithm of the decay, [N, H] float32."""
        rate_NH = F.softplus(a_NH.float() + self.dt_bias.float())
        return -self.A_log.float().exp() * rate_NH


def prepare(model: CausalLM) -> None:
    """Let the linear-attention layers of `model` compute packed prefix groups, in place."""
    for net in _delta_nets(model):
        if hasattr(net, DECAY):
            continue
        decay = Decay(net.A_log, net.dt_bias)
        del net.A_log, net.dt_bias
        net.add_module(DECAY, decay)
        net.forward = MethodType(_forward, net)


def decays(model: torch.nn.Module) -> Iterator[Decay]:
    """Yield the modules whose parameters stay float32."""
    return (module for module in model.modules() if isinstance(module, Decay))


def _delta_nets(model: torch.nn.Module) -> Iterator[Any]:
    return (net for name, net in model.named_modules() if name.endswith(".linear_attn"))


def _forward(
    net: Any,  # noqa: ANN401 - a layer of transformers, whose classes differ by family
    hidden_states: torch.Tensor,
    cache_params: object = None,
    attention_mask: object = None,
    *,
    recurrent_layout: RecurrentLayout | None = None,
    **unused: object,
) -> torch.Tensor:
    """Compute the layer's output, [1, N, D]; without a layout the stream is one sequence.

    The signature is that of transformers' `Qwen3_5GatedDeltaNet`.
    """
    del cache_params, attention_mask, unused
    x_ND = hidden_states[0]
    if recurrent_layout is None:
        whole = PrefixGroup(prompt_length=len(x_ND), branch_lengths=())
        recurrent_layout = RecurrentLayout.of((whole,), net.conv_kernel_size, x_ND.device)
    mixed_NE = _convolved(net.conv1d, net.in_proj_qkv(x_ND), recurrent_layout)
    query, key, value = torch.split(mixed_NE, [net.key_dim, net.key_dim, net.value_dim], dim=-1)
    repeats = net.num_v_heads // net.num_k_heads
    inputs = DeltaInputs(
        query=_heads(query, net.head_k_dim).repeat_interleave(repeats, dim=1),
        key=_heads(key, net.head_k_dim).repeat_interleave(repeats, dim=1),
        value=_heads(value, net.head_v_dim),
        decay=getattr(net, DECAY)(net.in_proj_a(x_ND)),
        beta=net.in_proj_b(x_ND).sigmoid(),
    )
    mixed_NHV = mixed(inputs, recurrent_layout).to(x_ND.dtype)
    gate_NHV = _heads(net.in_proj_z(x_ND), net.head_v_dim)
    normed = net.norm(mixed_NHV.flatten(0, 1), gate_NHV.flatten(0, 1))
    output: torch.Tensor = net.out_proj(normed.view(len(x_ND), -1))
    return output.unsqueeze(0)


def _heads(x: torch.Tensor, size: int) -> torch.Tensor:
    """Return [N, heads, size] of [N, heads x size]."""
    return x.reshape(len(x), -1, size)


def _convolved(
    convolution: torch.nn.Conv1d, x_NE: torch.Tensor, layout: RecurrentLayout
) -> torch.Tensor:
    """Convolve each channel over a sequence's last W tokens, then silu; [N, E].

    One convolution over the whole stream, in which the first tokens of a run see the run before;
    those are computed again, by what they should see.
    """
    length, weight_EW = len(x_NE), convolution.weight.squeeze(1)
    whole_NE = convolution(x_NE.T.unsqueeze(0))[0, :, :length].T
    none_1E = x_NE.new_zeros(1, x_NE.shape[1])
    seen_JWE = torch.cat((x_NE, none_1E))[layout.taps_JW]
    heads_JE = (seen_JWE.float() * weight_EW.T.float()).sum(1).to(x_NE.dtype)
    return F.silu(whole_NE.index_copy(0, layout.heads_J, heads_JE))
