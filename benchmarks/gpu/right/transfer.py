"""Weights on their way to engines: a group of one by NCCL, chunks of the model, CUDA IPC."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import suppress

import torch

from benchmarks.gpu.setting import Cases, Setting, synchronize
from trainer.weights.broadcast import WeightBroadcastGroup, free_address
from trainer.weights.digests import tensor_digest
from trainer.weights.ipc import export_ipc_handle

OTHER = """
import sys, torch
from trainer.weights.digests import tensor_digest
from trainer.weights.ipc import open_ipc_handle
torch.zeros(1, device=sys.argv[1])
print("ready", flush=True)
mine = open_ipc_handle(bytes.fromhex(sys.stdin.readline()))
for _ in range(2):
    print(tensor_digest(mine), flush=True)
    sys.stdin.readline()
"""
"""A process that is no child: what an engine does with a handle."""


def broadcast(setting: Setting) -> Cases:
    """A group of one sends a tensor: NCCL's group is made by hand, as the trainer makes it."""
    device = torch.device(setting.device)
    started = time.perf_counter()
    group = WeightBroadcastGroup(free_address(), 0, 1, device)
    formed = time.perf_counter() - started
    tensor = torch.randn(setting.size(1 << 28, 1 << 10), device=device)
    before = tensor_digest(tensor)
    group.broadcast(tensor)
    started = time.perf_counter()
    group.broadcast(tensor)
    yield (
        "group_of_one",
        {
            "formed_s": formed,
            "gib_per_s": tensor.nbytes / 1024**3 / (time.perf_counter() - started),
            "is_same": tensor_digest(tensor) == before,
        },
    )


def chunks(setting: Setting) -> Cases:
    """Every chunk of a model with the whole vocabulary is gathered, digested and handed over."""
    rank = setting.rank(2)
    rank.sender.init_group(free_address(), 1)
    sent = rank.sender.chunks(rank.version)
    started = time.perf_counter()
    for chunk in sent.chunks:
        rank.sender.send(chunk)
    synchronize(setting.device)
    seconds = time.perf_counter() - started
    by_chunks = rank.sender.digests().digests
    whole = {name: tensor_digest(tensor) for name, tensor in rank.weights().items()}
    num_bytes = sum(tensor.num_bytes for chunk in sent.chunks for tensor in chunk)
    yield (
        "sent",
        {
            "chunks": len(sent.chunks),
            "gib": num_bytes / 1024**3,
            "seconds": seconds,
            "is_same": by_chunks == whole,
        },
    )
    rank.sender.release_ipc_handles()


def ipc(setting: Setting) -> Cases:
    """Another process copies a tensor from a handle; its copy stays when the memory changes."""
    tensor = torch.randn(setting.size(1 << 28, 1 << 10), device=setting.device)
    expected = tensor_digest(tensor)
    with subprocess.Popen(
        [sys.executable, "-c", OTHER, setting.device],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        started = time.perf_counter()
        _say(other, export_ipc_handle(tensor).hex())
        copied = other.stdout.readline().strip()
        seconds = time.perf_counter() - started
        tensor.zero_()
        synchronize(setting.device)
        _say(other, "again")
        kept = other.stdout.readline().strip()
        _say(other, "done")
    yield "handle", {"seconds": seconds, "is_same": copied == kept == expected}


def _say(other: subprocess.Popen[str], line: str) -> None:
    """Send a line; a process that has ended answers nothing, which is seen by that."""
    assert other.stdin is not None
    with suppress(BrokenPipeError):
        other.stdin.write(line + "\n")
        other.stdin.flush()
