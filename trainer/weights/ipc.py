"""A tensor's memory, shown to a process that did not come from this one."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing  # registers how tensors are shared


def lent(tensor: torch.Tensor) -> bytes:
    """Return what `borrowed` makes the same tensor of, on this machine, while this one lives.

    On a GPU that is a CUDA IPC handle, for a process on the same GPU; on a CPU, where it moves the
    tensor, a name in shared memory.
    """
    if tensor.device.type == "cpu":
        # The default passes open files, which only a process's own children can take.
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    return bytes(ForkingPickler.dumps(tensor))


def borrowed(handle: bytes) -> torch.Tensor:
    """Return a copy of what was lent: who takes weights may hold on to them for longer."""
    tensor: torch.Tensor = pickle.loads(handle)  # noqa: S301 - of the run's own learner
    return tensor.clone()
