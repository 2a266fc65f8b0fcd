"""An optimizer's state in the machine's memory, while an engine uses the GPU that it belongs to."""

from __future__ import annotations

import torch

HOST = torch.device("cpu")


def park(optimizer: torch.optim.Optimizer) -> None:
    """Move the moments to the machine's memory, and free the gradients of the last update.

    Counters of steps stay, which a fused optimizer wants on the GPU. Nothing changes where the
    weights are not on a GPU themselves.
    """
    optimizer.zero_grad(set_to_none=True)
    for values in optimizer.state.values():
        _move(values, HOST)


def unpark(optimizer: torch.optim.Optimizer) -> None:
    """Move the moments back to the devices of their weights."""
    for weight, values in optimizer.state.items():
        _move(values, weight.device)


def _move(values: dict[str, torch.Tensor], device: torch.device) -> None:
    for name, value in values.items():
        if value.dim():
            values[name] = value.to(device)
