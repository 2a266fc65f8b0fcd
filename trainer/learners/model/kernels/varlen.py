"""Attention over packed prefix groups in one call: flash attention of variable length.

Only GPUs have the kernel, in half precision; elsewhere `attention.py` calls one plain kernel per
branch. Legend: S sequences, Q query heads, K key/value heads, N tokens of the stream, M gathered
keys, H head size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn

from trainer.learners.packing.packing import PrefixGroup

CAUSAL = (-1, 0)
"""Window of the kernel: all tokens before, none behind. With fewer queries than keys the last query
is at the last key, so a branch sees its whole prompt."""
GROUPED: dict[str, Any] = (
    {"enable_gqa": True} if "enable_gqa" in signature(varlen_attn).parameters else {}
)
"""Several query heads share a head of keys. torch 2.13 has to be told; older ones, which GPU images
have (`benchmarks/gpu`), have no such argument and do it always."""
Kernel = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VarlenLayout:
    """The stream as causal sequences: a prompt alone, then each branch with its prompt's keys."""

    keys_M: torch.Tensor
    """int64: place in the stream of every key, sequence after sequence."""
    query_offsets: torch.Tensor
    """int32 [S+1]: where each sequence's queries begin in the stream."""
    key_offsets: torch.Tensor
    """int32 [S+1]: where each sequence's keys begin in `keys_M`."""
    longest_query: int
    longest_key: int
    kernel: Kernel
    """What computes it, with the signature of torch's `varlen_attn`."""

    @classmethod
    def of(
        cls,
        prefix_groups: Sequence[PrefixGroup],
        device: torch.device,
        kernel: Kernel = varlen_attn,
    ) -> VarlenLayout:
        """Return the layout of a micro-batch."""
        keys: list[torch.Tensor] = []
        queries: list[int] = []
        start = 0
        for group in prefix_groups:
            prompt = torch.arange(start, start + group.prompt_length)
            keys.append(prompt)
            queries.append(group.prompt_length)
            start += group.prompt_length
            # A rollout of a single token adds no token to the stream, and so no query.
            for length in filter(None, group.branch_lengths):
                keys.append(torch.cat((prompt, torch.arange(start, start + length))))
                queries.append(length)
                start += length
        key_lengths = [len(each) for each in keys]
        return cls(
            keys_M=torch.cat(keys).to(device),
            query_offsets=_offsets(queries, device),
            key_offsets=_offsets(key_lengths, device),
            longest_query=max(queries),
            longest_key=max(key_lengths),
            kernel=kernel,
        )


def has_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Tell whether the kernel exists for tensors like these."""
    return device.type == "cuda" and dtype in (torch.bfloat16, torch.float16)


def attend(
    stream: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    layout: VarlenLayout,
    scaling: float,
) -> torch.Tensor:
    """Compute the output [1, N, Q, H] of queries [1, Q, N, H], keys and values [1, K, N, H].

    One call, whatever the lengths: a micro-batch of new lengths costs no new plan and no launches
    per branch.
    """
    query_NQH, key_NKH, value_NKH = (each[0].transpose(0, 1) for each in stream)
    output_NQH: torch.Tensor = layout.kernel(
        query_NQH.contiguous(),
        key_NKH.index_select(0, layout.keys_M),
        value_NKH.index_select(0, layout.keys_M),
        layout.query_offsets,
        layout.key_offsets,
        layout.longest_query,
        layout.longest_key,
        scale=scaling,
        window_size=CAUSAL,
        **GROUPED,
    )
    return output_NQH.unsqueeze(0)


def _offsets(lengths: Sequence[int], device: torch.device) -> torch.Tensor:
    ends = torch.tensor(lengths).cumsum(0)
    return torch.cat((torch.zeros(1, dtype=ends.dtype), ends)).to(device, torch.int32)
