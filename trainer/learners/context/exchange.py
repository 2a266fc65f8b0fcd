"""Trades tokens for heads around attention, the one place where tokens of a stream meet.

Outside of it a rank has its part of the tokens with all heads, inside all tokens with its part of
the heads: an all-to-all before and one behind it, and the same two backward. The bytes per rank
fall with the number of ranks. Source: Jacobs et al. 2023 (DeepSpeed Ulysses, arXiv:2309.14509).
Legend: C ranks of the group, N tokens of the stream, M those of this rank, Q query heads, K heads
of keys and values, H head size, q and k the heads of one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from trainer.learners.context.group import ContextGroup

Stream = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Queries, keys and values."""


def heads_for_tokens(stream: Stream, context: ContextGroup, num_tokens: int) -> Stream:
    """Return [1, q, N, H], [1, k, N, H] twice, from [1, Q, M, H], [1, K, M, H] twice.

    Where there are fewer heads of keys and values than ranks, ranks get copies of one head, whose
    gradients add up.
    """
    size, lengths = context.size, context.lengths(num_tokens)
    copies = max(size // stream[1].shape[1], 1)
    query, key, value = (each[0] for each in stream)
    if copies > 1:
        key, value = (each.repeat_interleave(copies, dim=0) for each in (key, value))
    widths = [each.shape[0] // size for each in (query, key, value)]
    by_rank = [
        each.view(size, width, *each.shape[1:]).transpose(1, 2)
        for each, width in zip((query, key, value), widths, strict=True)
    ]
    sent = torch.cat(by_rank, dim=2).contiguous().flatten(0, 1)
    own = [lengths[context.rank]] * size
    received: torch.Tensor = _Exchange.apply(sent, context.processes, own, lengths)  # type: ignore[no-untyped-call]
    query, key, value = (
        each.transpose(0, 1).unsqueeze(0) for each in torch.split(received, widths, dim=1)
    )
    return query, key, value


def tokens_for_heads(output_1NqH: torch.Tensor, context: ContextGroup) -> torch.Tensor:
    """Return attention's output [1, M, Q, H] from that of this rank's heads."""
    lengths = context.lengths(output_1NqH.shape[1])
    own = [lengths[context.rank]] * context.size
    received: torch.Tensor = _Exchange.apply(  # type: ignore[no-untyped-call]
        output_1NqH[0].contiguous(), context.processes, lengths, own
    )
    parts = received.view(context.size, own[0], *received.shape[1:])
    return parts.transpose(0, 1).flatten(1, 2).unsqueeze(0)


class _Exchange(torch.autograd.Function):
    """Sends the first rows to rank 0 and so on; returns what all ranks sent, in their order."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context has no useful type
        rows: torch.Tensor,
        processes: dist.ProcessGroup,
        num_sent: Sequence[int],
        num_received: Sequence[int],
    ) -> torch.Tensor:
        ctx.processes, ctx.num_sent, ctx.num_received = processes, num_sent, num_received
        received = rows.new_empty((sum(num_received), *rows.shape[1:]))
        dist.all_to_all_single(received, rows, list(num_received), list(num_sent), group=processes)
        return received

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401
        gradient: torch.Tensor,
    ) -> tuple[torch.Tensor, None, None, None]:
        back = gradient.new_empty((sum(ctx.num_sent), *gradient.shape[1:]))
        dist.all_to_all_single(
            back,
            gradient.contiguous(),
            list(ctx.num_sent),
            list(ctx.num_received),
            group=ctx.processes,
        )
        return back, None, None, None
