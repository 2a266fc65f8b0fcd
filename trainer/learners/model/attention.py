"""Attention over packed prefix groups, plugged into transformers' models by their interface.

The model stays transformers' module, so sharding hooks and later architectures keep working; only
the attention pattern is ours. Legend: Q query heads, K key/value heads, N tokens, H head size.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from trainer.learners.context.exchange import Stream, heads_for_tokens, tokens_for_heads
from trainer.learners.context.group import ContextGroup
from trainer.learners.model.kernels.varlen import VarlenLayout, attend
from trainer.learners.packing.packing import PrefixGroup

NAME = "hillclimb_prefix_groups"


def prefix_group_attention(  # noqa: PLR0913 - the signature is transformers'
    module: torch.nn.Module,
    query_1QNH: torch.Tensor,
    key_1KNH: torch.Tensor,
    value_1KNH: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    prefix_groups: Sequence[PrefixGroup] | None = None,
    varlen_layout: VarlenLayout | None = None,
    context_group: ContextGroup | None = None,
    **unused: object,
) -> tuple[torch.Tensor, None]:
    """Compute the output [1, N, Q, H]; without `prefix_groups` the stream is one causal sequence.

    With `varlen_layout` one kernel computes all of it, else each prompt and branch is a call. With
    `context_group` N are this rank's tokens of the stream that `prefix_groups` describe.

    The signature is that of transformers 5's `AttentionInterface`; keyword arguments of the
    model's forward arrive here.
    """
    del module, attention_mask, unused
    stream = (query_1QNH, key_1KNH, value_1KNH)
    if context_group is None and varlen_layout is not None:
        # The groups are not looked at: a layer's traced graph then serves any number of them.
        return attend(stream, varlen_layout, scaling), None
    groups = prefix_groups or (PrefixGroup(prompt_length=query_1QNH.shape[2], branch_lengths=()),)
    if context_group is None:
        return _attend_stream(stream, groups, varlen_layout, scaling), None
    num_tokens = sum(group.num_tokens for group in groups)
    stream = heads_for_tokens(stream, context_group, num_tokens)
    output_1NqH = _attend_stream(stream, groups, varlen_layout, scaling)
    return tokens_for_heads(output_1NqH, context_group), None


def _attend_stream(
    stream: Stream, groups: Sequence[PrefixGroup], layout: VarlenLayout | None, scaling: float
) -> torch.Tensor:
    if layout is not None:
        return attend(stream, layout, scaling)
    parts: list[torch.Tensor] = []
    start = 0
    for group in groups:
        parts += _attend_group(group, start, stream, scaling)
        start += group.num_tokens
    return torch.cat(parts, dim=2).transpose(1, 2)


def _attend_group(
    group: PrefixGroup,
    start: int,
    stream: Stream,
    scaling: float,
) -> list[torch.Tensor]:
    """Return the outputs of the prompt and of each branch, in the order of the stream.

    A branch attends to the prompt's keys and its own: siblings never see each other.
    """
    query, key, value = stream
    if len(group.branch_lengths) == 1:
        # A prompt with a single branch is one causal sequence: the fastest kernels know that.
        group = PrefixGroup(prompt_length=group.num_tokens, branch_lengths=())
    stop = start + group.prompt_length
    prompt_key, prompt_value = key[:, :, start:stop], value[:, :, start:stop]
    parts = [
        F.scaled_dot_product_attention(
            query[:, :, start:stop], prompt_key, prompt_value,
            is_causal=True, scale=scaling, enable_gqa=True,
        )
    ]  # fmt: skip
    # A rollout of a single token adds none to the stream, and flash attention takes no empty query.
    for length in filter(None, group.branch_lengths):
        start, stop = stop, stop + length
        parts.append(
            F.scaled_dot_product_attention(
                query[:, :, start:stop],
                torch.cat((prompt_key, key[:, :, start:stop]), dim=2),
                torch.cat((prompt_value, value[:, :, start:stop]), dim=2),
                attn_mask=_branch_mask(group.prompt_length, length, query.device),
                scale=scaling,
                enable_gqa=True,
            )
        )
    return parts


def _branch_mask(prompt_length: int, length: int, device: torch.device) -> torch.Tensor:
    """True over the whole prompt and causally over the branch, [length, prompt + length].

    On a GPU it stays symbolic and is never built: for 64k tokens it would take 4 GB.
    """
    if device.type == "cuda":
        return causal_lower_right(length, prompt_length + length)
    columns = torch.arange(prompt_length + length, device=device)
    return columns <= prompt_length + torch.arange(length, device=device).unsqueeze(1)


AttentionInterface.register(NAME, prefix_group_attention)
