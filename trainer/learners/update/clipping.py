"""Gradients held to a norm, over all ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.distributed.tensor import DTensor

from trainer.learners.sharding import Ranks


def clip_gradients(
    parameters: Iterable[torch.nn.Parameter], max_norm: float, ranks: Ranks
) -> float:
    """Scale the gradients down to `max_norm`, in place; return the norm that they had.

    Every rank holds other pieces of them; the norm is that of all pieces together.
    """
    pieces = [
        gradient.to_local() if isinstance(gradient, DTensor) else gradient
        for parameter in parameters
        if (gradient := parameter.grad) is not None
    ]
    norms = torch._foreach_norm(pieces)  # noqa: SLF001 - what torch's own clipping calls
    norm = ranks.sum_(torch.stack(norms).square().sum()).sqrt().item()
    if norm > max_norm:
        torch._foreach_mul_(pieces, max_norm / (norm + 1e-6))
    return norm
