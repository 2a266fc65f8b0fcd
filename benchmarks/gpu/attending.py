"""Ways to compute attention over packed families, and streams to compute it over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn

from benchmarks.gpu.setting import Setting, synchronize
from trainer.learners.model.attention import prefix_group_attention
from trainer.learners.model.kernels import flash4, varlen
from trainer.learners.model.kernels.varlen import Kernel, VarlenLayout, has_varlen
from trainer.learners.packing.packing import PrefixGroup

Stream = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
Groups = Sequence[PrefixGroup]


@dataclass(frozen=True)
class Way:
    """A way to compute it."""

    name: str
    in_one_call: bool = False
    kernel: Kernel = varlen_attn
    """Of the one call."""
    backend: SDPBackend | None = None
    """The one that torch may use for scaled dot products; None: whichever it chooses."""

    @contextmanager
    def chosen(self) -> Iterator[None]:
        """Let torch use the backend within the block."""
        if self.backend is None:
            yield
            return
        before: bool = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
        torch.backends.cuda.enable_cudnn_sdp(self.backend is SDPBackend.CUDNN_ATTENTION)
        try:
            with sdpa_kernel(self.backend):
                yield
        finally:
            torch.backends.cuda.enable_cudnn_sdp(before)


def ways(device: str) -> tuple[Way, ...]:
    """Return those that the device has; the learner takes the first."""
    per_branch = Way("per_branch")
    if not has_varlen(torch.device(device), torch.bfloat16):
        return (per_branch,)
    return (
        Way("one_call", in_one_call=True),
        *(
            (Way("one_call_flash4", in_one_call=True, kernel=flash4.attend),)
            if flash4.is_there()
            else ()
        ),
        Way("per_branch_flash", backend=SDPBackend.FLASH_ATTENTION),
        Way("per_branch_cudnn", backend=SDPBackend.CUDNN_ATTENTION),
    )


def stream(setting: Setting, num_tokens: int, dtype: torch.dtype) -> Stream:
    """Queries, keys and values as the model has them, leaves with a gradient."""
    shape = setting.shape
    torch.manual_seed(num_tokens)
    query, key, value = (
        torch.randn(1, heads, num_tokens, shape.head_dim, device=setting.device)
        .to(dtype)
        .requires_grad_()
        for heads in (shape.num_heads, shape.num_kv_heads, shape.num_kv_heads)
    )
    return query, key, value


def attend(setting: Setting, groups: Groups, parts: Stream, way: Way) -> torch.Tensor:
    """Compute the output [1, N, Q, H]."""
    scaling = setting.shape.head_dim**-0.5
    if way.in_one_call:
        layout = VarlenLayout.of(groups, torch.device(setting.device), way.kernel)
        return varlen.attend(parts, layout, scaling)
    with way.chosen():
        output, _ = prefix_group_attention(
            torch.nn.Identity(), *parts, None, scaling=scaling, prefix_groups=groups
        )
    return output


def pass_over(setting: Setting, groups: Groups, parts: Stream, way: Way) -> None:
    """Compute forward and backward, and wait for the device."""
    with way.chosen():
        torch.autograd.backward(attend(setting, groups, parts, way).float().sum())
    synchronize(setting.device)
