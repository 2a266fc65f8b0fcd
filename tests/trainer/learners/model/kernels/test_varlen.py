"""One call of variable-length attention computes what a call per prompt and branch computes.

The kernel itself needs a GPU. Here a plain one stands in its place, with the same arguments and
the kernel's own rule for fewer queries than keys; the real one is checked for its shapes alone.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist

from trainer.learners.model import sharding
from trainer.learners.model.attention import prefix_group_attention
from trainer.learners.model.kernels.varlen import CAUSAL, VarlenLayout, attend, has_varlen
from trainer.learners.packing.packing import PrefixGroup

GROUPS = (
    PrefixGroup(prompt_length=5, branch_lengths=(3, 1, 4)),
    PrefixGroup(prompt_length=1, branch_lengths=(2,)),
    PrefixGroup(prompt_length=4, branch_lengths=()),
    # A rollout of one token adds nothing to the stream: its token is a target only.
    PrefixGroup(prompt_length=3, branch_lengths=(0, 2)),
)
NUM_TOKENS = sum(group.num_tokens for group in GROUPS)
HEADS, KV_HEADS, SIZE = 4, 2, 8


def stream(seed: int, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys and values of the groups; leaves with a gradient."""
    generator = torch.Generator().manual_seed(seed)
    query, key, value = (
        torch.randn(1, heads, NUM_TOKENS, SIZE, generator=generator)
        .to(device)
        .requires_grad_(requires_grad=True)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    return query, key, value


def plain_kernel(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scale: float,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> torch.Tensor:
    """`varlen_attn` by softmax, sequence after sequence; the last query is at the last key."""
    assert window_size == CAUSAL
    assert enable_gqa
    key = key.repeat_interleave(HEADS // KV_HEADS, dim=1)
    value = value.repeat_interleave(HEADS // KV_HEADS, dim=1)
    parts = []
    bounds = zip(pairwise(query_offsets.tolist()), pairwise(key_offsets.tolist()), strict=True)
    for (first, last), (first_key, last_key) in bounds:
        num_queries, num_keys = last - first, last_key - first_key
        assert num_queries <= longest_query
        assert num_keys <= longest_key
        scores = torch.einsum("nqh,mqh->qnm", query[first:last], key[first_key:last_key]) * scale
        sees = torch.arange(num_keys) <= (
            torch.arange(num_queries).unsqueeze(1) + num_keys - num_queries
        )
        weights = scores.masked_fill(~sees, -torch.inf).softmax(-1)
        parts.append(torch.einsum("qnm,mqh->nqh", weights, value[first_key:last_key]))
    return torch.cat(parts)


def test_outputs_and_gradients_are_those_of_a_call_per_branch() -> None:
    one, many = stream(0), stream(0)
    layout = VarlenLayout.of(GROUPS, torch.device("cpu"))
    by_one = attend(one, replace(layout, kernel=plain_kernel), 0.3)
    by_many, _ = prefix_group_attention(
        torch.nn.Identity(), *many, None, scaling=0.3, prefix_groups=GROUPS
    )
    torch.testing.assert_close(by_one, by_many, rtol=0.0, atol=2e-6)
    direction = torch.randn(by_one.shape, generator=torch.Generator().manual_seed(1))
    torch.autograd.backward((by_one * direction).sum())
    torch.autograd.backward((by_many * direction).sum())
    for mine, other in zip(one, many, strict=True):
        assert mine.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(mine.grad, other.grad, rtol=0.0, atol=5e-6)


def test_the_kernel_takes_what_the_layout_gives() -> None:
    """On the meta device torch runs the kernel's checks and shapes, and computes nothing."""
    layout = VarlenLayout.of(GROUPS, torch.device("meta"))
    query, key, value = (each.detach() for each in stream(0, "meta"))
    output = attend((query, key, value), layout, 0.3)
    assert output.shape == (1, NUM_TOKENS, HEADS, SIZE)
    assert layout.query_offsets.dtype == layout.key_offsets.dtype == torch.int32


def test_the_model_passes_a_layout_on_to_every_layer() -> None:
    layout = VarlenLayout.of(GROUPS, torch.device("meta"))
    query, key, value = (each.detach() for each in stream(0, "meta"))
    output, _ = prefix_group_attention(
        torch.nn.Identity(), query, key, value, None,
        scaling=0.3, prefix_groups=GROUPS, varlen_layout=layout,
    )  # fmt: skip
    assert output.shape == (1, NUM_TOKENS, HEADS, SIZE)


@pytest.mark.parametrize(
    ("device", "dtype", "has"),
    [
        ("cuda", torch.bfloat16, True),
        ("cuda", torch.float32, False),
        ("cpu", torch.bfloat16, False),
    ],
)
def test_only_half_precision_on_a_gpu_has_the_kernel(
    device: str, dtype: torch.dtype, *, has: bool
) -> None:
    assert has_varlen(torch.device(device), dtype) is has


def test_a_rank_that_joins_on_a_gpu_builds_no_plan_per_shape(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The two calls that need a GPU are left out."""
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    before = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(enabled=True)
    try:
        sharding._join(sharding.RankGroup(device="cuda:0"), torch.device("cuda:0"))
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(enabled=before)
