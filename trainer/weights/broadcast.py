"""A way from one process to several others, beside whatever process groups they are in.

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

TIMEOUT = timedelta(minutes=2)
"""Longest wait of one process for the others."""


def free_address(host: str = "127.0.0.1") -> str:
    """Return `HOST:PORT` where processes can meet this one, on a machine that they know as `host`.

    The port is free now; who meets there takes it a moment later.
    """
    with socket.socket() as probe:
        probe.bind((host, 0))
        return f"{host}:{probe.getsockname()[1]}"


class Channel:
    """Number 0 hands tensors to all others."""

    def __init__(self, address: str, number: int, size: int, device: torch.device) -> None:
        """Meet the others at `HOST:PORT`; returns when all of them are there.

        Raises:
            RuntimeError: they were not there in time.
        """
        host, _, port = address.rpartition(":")
        meeting = TCPStore(host, int(port), size, is_master=number == 0, timeout=TIMEOUT)
        store = PrefixStore("weights", meeting)
        self._device = device
        self._group: Any
        if device.type == "cuda":
            options = dist.ProcessGroupNCCL.Options()
            options._timeout = TIMEOUT  # noqa: SLF001 - as torch.distributed itself sets it
            self._group = dist.ProcessGroupNCCL(store, number, size, options)
        else:
            self._group = dist.ProcessGroupGloo(store, number, size, TIMEOUT)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Hand on `tensor` (number 0), or fill it (all others); returns when that is done."""
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self._group.broadcast([tensor], options).wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
