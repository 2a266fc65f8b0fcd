"""IPC handles: a process maps the tensor memory of another that is not its parent."""

from __future__ import annotations

import pickle
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing  # registers how tensors are shared


def export_ipc_handle(tensor: torch.Tensor) -> bytes:
    """Return a handle from which `open_ipc_handle` maps the same memory on this machine.

    On a GPU that is a CUDA IPC handle, for a process on the same GPU; on a CPU, where it moves the
    tensor, a name in shared memory.
    """
    if tensor.device.type == "cpu":
        # The default passes open files, which only a process's own children can take.
        torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    return bytes(ForkingPickler.dumps(tensor))


def open_ipc_handle(handle: bytes) -> torch.Tensor:
    """Return a copy of the handle's tensor: a loader may keep it longer than the sender does."""
    tensor: torch.Tensor = pickle.loads(handle)  # noqa: S301 - from the run's own learner
    return tensor.clone()
