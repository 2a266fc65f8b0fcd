"""FlashAttention 4 for packed sequences, from the copy that vLLM brings: the fastest on an H100.

torch's own kernel for variable lengths is FlashAttention 2, which does not know the tensor memory
accelerator of Hopper. Measured on one H100 (`benchmarks/gpu`): a step over 65k tokens takes 0.71 of
its time. The kernels are compiled on first use, in seconds, and not again for other lengths.

It is an operation of torch, so that activation checkpointing can keep its results.
Legend: Q query heads, K key/value heads, H head size, N queries, M keys, S sequences.
"""

from __future__ import annotations

import importlib.util
import warnings
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn

from trainer.inputs.model.families.family import CausalLMConfig, head_dim
from trainer.learners.model.kernels.varlen import CAUSAL, GROUPED, Kernel

_KERNELS = "vllm.vllm_flash_attn.cute.interface"
_HOPPER = (9, 0)
_HEAD_DIM = 128
"""What it was compared on; other GPUs and sizes keep torch's kernel."""
_LARGEST_GAP = 0.02
"""Of outputs and gradients from those of torch's kernel, over the largest value: both round to
bfloat16."""


def fastest_kernel(device: torch.device, dtype: torch.dtype, config: CausalLMConfig) -> Kernel:
    """Return FlashAttention 4 where it is there and agrees with torch's kernel, else the latter."""
    if (
        device.type != "cuda"
        or dtype is not torch.bfloat16
        or torch.cuda.get_device_capability(device) != _HOPPER
        or head_dim(config) != _HEAD_DIM
        or not is_there()
    ):
        return varlen_attn
    heads = (config.num_attention_heads, config.num_key_value_heads or config.num_attention_heads)
    try:
        gap = _gap(device, heads)
    except Exception as error:  # noqa: BLE001 - a compiler of kernels may fail in any way; the run need not
        why = f"{type(error).__name__}: {error}"
    else:
        if gap <= _LARGEST_GAP:
            return attend
        why = f"it differs from torch's kernel by {gap:.3g} of the largest value"
    warnings.warn(f"FlashAttention 4 is not used: {why}", stacklevel=2)
    return varlen_attn


def is_there() -> bool:
    """Tell whether vLLM brings a copy."""
    try:
        return importlib.util.find_spec(_KERNELS) is not None
    except ImportError:
        return False


def attend(  # noqa: PLR0913 - the signature is that of torch's kernel
    query_NQH: torch.Tensor,
    key_MKH: torch.Tensor,
    value_MKH: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    *,
    scale: float,
    **unused: object,
) -> torch.Tensor:
    """Compute the output [N, Q, H], causal from the last query and the last key of a sequence."""
    del unused
    output_NQH: torch.Tensor = _forward(
        query_NQH, key_MKH, value_MKH, query_offsets, key_offsets,
        longest_query, longest_key, scale,
    )[0]  # fmt: skip
    return output_NQH


@torch.library.custom_op("hillclimb::flash4", mutates_args=())
def _forward(  # noqa: PLR0913
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the output and the log-sum-exp [Q, N] of each query."""
    output, logsumexp, *_ = _interface()._flash_attn_fwd(  # noqa: SLF001 - what torch calls too
        query, key, value,
        cu_seqlens_q=query_offsets, cu_seqlens_k=key_offsets,
        max_seqlen_q=longest_query, max_seqlen_k=longest_key,
        softmax_scale=scale, causal=True, return_lse=True,
    )  # fmt: skip
    return output, logsumexp


@_forward.register_fake
def _(query: torch.Tensor, *_others: object) -> tuple[torch.Tensor, torch.Tensor]:
    num_queries, heads, _ = query.shape
    return torch.empty_like(query), query.new_empty(heads, num_queries, dtype=torch.float32)


@torch.library.custom_op("hillclimb::flash4_backward", mutates_args=())
def _backward(  # noqa: PLR0913
    grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    output: torch.Tensor,
    logsumexp: torch.Tensor,
    query_offsets: torch.Tensor,
    key_offsets: torch.Tensor,
    longest_query: int,
    longest_key: int,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    gradients = _interface()._flash_attn_bwd(  # noqa: SLF001
        query, key, value, output, grad.contiguous(), logsumexp,
        cu_seqlens_q=query_offsets, cu_seqlens_k=key_offsets,
        max_seqlen_q=longest_query, max_seqlen_k=longest_key,
        softmax_scale=scale, causal=True,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )  # fmt: skip
    return gradients[0], gradients[1], gradients[2]


@_backward.register_fake
def _(
    _grad: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *_others: object,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:  # noqa: ANN401 - torch's context has no useful type
    query, key, value, query_offsets, key_offsets, *ctx.plain = inputs
    ctx.save_for_backward(query, key, value, *output, query_offsets, key_offsets)


def _differentiate(
    ctx: Any,  # noqa: ANN401
    grad: torch.Tensor,
    _: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    return (*_backward(grad, *ctx.saved_tensors, *ctx.plain), *(None,) * 5)


_forward.register_autograd(_differentiate, setup_context=_remember)


def _interface() -> Any:  # noqa: ANN401 - a module without types
    return import_module(_KERNELS)


def _gap(device: torch.device, heads: tuple[int, int]) -> float:
    """Compare both kernels on a prompt and two branches; return the largest relative gap."""
    generator = torch.Generator(device).manual_seed(0)
    query_lengths, key_lengths = (150, 200, 3), (150, 350, 153)
    offsets = [
        torch.tensor((0, *lengths), device=device).cumsum(0).int()
        for lengths in (query_lengths, key_lengths)
    ]
    sizes = ((sum(query_lengths), heads[0]), (sum(key_lengths), heads[1]))
    query, key, value = (
        torch.randn(*sizes[part], _HEAD_DIM, device=device, generator=generator).bfloat16()
        for part in (0, 1, 1)
    )
    longest = (max(query_lengths), max(key_lengths))
    kernels: tuple[Kernel, ...] = (partial(varlen_attn, window_size=CAUSAL, **GROUPED), attend)
    results: list[tuple[torch.Tensor, ...]] = []
    for kernel in kernels:
        leaves = [x.detach().requires_grad_() for x in (query, key, value)]
        output: torch.Tensor = kernel(*leaves, *offsets, *longest, scale=_HEAD_DIM**-0.5)
        gradients = torch.autograd.grad(output.float().square().sum(), leaves)
        results.append((output.detach(), *gradients))
    return max(
        float((mine.float() - true.float()).abs().max() / true.float().abs().max())
        for true, mine in zip(*results, strict=True)
    )
