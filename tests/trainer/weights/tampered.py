"""A learner whose weights are changed on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from trainer.weights.digests import WeightDigests
from trainer.weights.file_system import WritesWeights

Weights = dict[str, torch.Tensor]


class Tampered:
    """`WritesWeights` with a file, or an adapter's file, that something else has changed."""

    def __init__(self, learner: WritesWeights, change: Callable[[Weights], None]) -> None:
        self._learner, self._change = learner, change

    async def write_weights(self, path: Path) -> WeightDigests:
        """Write, and let it be changed."""
        written = await self._learner.write_weights(path)
        await asyncio.to_thread(self._rewrite, path)
        return written

    def _rewrite(self, path: Path) -> None:
        file = path / "adapter_model.safetensors" if path.is_dir() else path
        weights = load_file(file)
        self._change(weights)
        save_file(weights, file)


def drifted(size: float = 1e-6) -> Callable[[Weights], None]:
    """Move every weight as little as an update does."""

    def change(weights: Weights) -> None:
        for tensor in weights.values():
            tensor.add_(size)

    return change


def one_bit_off(name: str) -> Callable[[Weights], None]:
    """Move one number of one tensor to the next that there is."""

    def change(weights: Weights) -> None:
        bits = torch.int16 if weights[name].itemsize == 2 else torch.int32
        weights[name].view(-1).view(bits)[-1] ^= 1

    return change


def without(*names: str) -> Callable[[Weights], None]:
    """Leave tensors out."""

    def change(weights: Weights) -> None:
        for name in names:
            del weights[name]

    return change


def stale(name: str, old: Weights) -> Callable[[Weights], None]:
    """Send one tensor as it was before."""

    def change(weights: Weights) -> None:
        weights[name] = old[name]

    return change


def nothing_of(old: Weights) -> Callable[[Weights], None]:
    """Send what was sent before."""

    def change(weights: Weights) -> None:
        weights.update(old)

    return change
