"""AdamW of the spec, by the kernel that suits the device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from hillclimb.spec.training.optimizer import OptimizerSpec
from trainer.learners.update.moments import CompactAdamW, Moments


def settings_of(spec: OptimizerSpec) -> dict[str, Any]:
    """Return AdamW's settings: also after a checkpoint was loaded they are those of the spec."""
    return {
        "lr": spec.lr,
        "betas": spec.betas,
        "eps": spec.eps,
        "weight_decay": spec.weight_decay,
    }


def make_optimizer(
    parameters: Iterable[torch.nn.Parameter],
    spec: OptimizerSpec,
    device: torch.device,
    *,
    moments: Moments = "float32",
    rank: int = 0,
) -> torch.optim.AdamW:
    """Return the optimizer of a rank that computes on `device`; offloaded weights are elsewhere.

    `moments` is how it stores them.
    Beside a GPU one kernel updates a tensor: without it the GPU needs 4 bytes per parameter more,
    and weights in the machine's memory take ten to fifteen times as long (13.3 against 0.85 ns per
    parameter on one busy core). A learner on CPUs keeps torch's plain order of operations, in which
    its figures were recorded.
    """
    is_fused = True if device.type == "cuda" else None
    settings = settings_of(spec)
    if moments == "float32":
        return torch.optim.AdamW(parameters, fused=is_fused, **settings)
    return CompactAdamW(parameters, moments, fused=is_fused, seed=rank, **settings)
