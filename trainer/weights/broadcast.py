"""Broadcast group of one sender and several receivers, beside their own process groups.

The group is made from torch's own classes, not by `init_process_group`: learner and engine are
both members of a default group of their own already. Source: `torch.distributed`'s
ProcessGroupGloo and ProcessGroupNCCL, as vLLM's `StatelessProcessGroup` uses them.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore

CONNECT_TIMEOUT = timedelta(minutes=10)
"""Longest wait until all members have joined and are connected, which NCCL does at the first
broadcast; an engine that still compiles its kernels comes late."""
TIMEOUT = timedelta(minutes=2)
"""Longest wait of one process for the others in a later broadcast."""


def free_address(host: str = "127.0.0.1") -> str:
    """Return a free `HOST:PORT` of this machine, which others know as `host`.

    The port is not reserved: another process may bind it before the group does.
    """
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


class WeightBroadcastGroup:
    """A process group in which rank 0 sends tensors to all others."""

    def __init__(self, address: str, rank: int, size: int, device: torch.device) -> None:
        """Join the group at `HOST:PORT`; returns when all members are connected.

        Raises:
            RuntimeError: not all of them were within `CONNECT_TIMEOUT`.
        """
        host, _, port = address.rpartition(":")
        rendezvous = TCPStore(host, int(port), size, is_master=rank == 0, timeout=CONNECT_TIMEOUT)
        store = PrefixStore("weights", rendezvous)
        self._device = device
        self._group: Any
        if device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = CONNECT_TIMEOUT  # noqa: SLF001 - as torch.distributed itself sets it
            self._group = dist.ProcessGroupNCCL(store, rank, size, options)
        else:
            self._group = dist.ProcessGroupGloo(store, rank, size, CONNECT_TIMEOUT)
        self.broadcast(torch.zeros(1, device=device))
        self._group._set_default_timeout(TIMEOUT)  # noqa: SLF001 - as above

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Send `tensor` (rank 0), or receive into it (all others); returns when that is done."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
