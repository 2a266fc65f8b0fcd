"""Gradient clipping by the norm over all ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor

from trainer.learners.model.sharding import Ranks


def clip_gradients(
    parameters: Iterable[torch.nn.Parameter], max_norm: float, ranks: Ranks
) -> float:
    """Scale the gradients down to `max_norm`, in place; return their norm before.

    Every rank holds a shard of each gradient; the norm is that of all shards together.
    """
    shards = [
        gradient.to_local() if isinstance(gradient, DTensor) else gradient
        for parameter in parameters
        if (gradient := parameter.grad) is not None
    ]
    norms = torch._foreach_norm(shards)  # noqa: SLF001 - what torch's own clipping calls
    norm = ranks.sum_(torch.stack(norms).square().sum()).sqrt().item()
    if norm > max_norm:
        torch._foreach_mul_(shards, max_norm / (norm + 1e-6))
    return norm
