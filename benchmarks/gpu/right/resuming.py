"""Whether a rank goes on after a checkpoint as if it had not been stopped, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.gpu.setting import Figures
from trainer.algo.sequences import Batch
from trainer.learners.rank import LearnerRank


def resumes(rank: LearnerRank, batches: list[Batch], folder: Path) -> Figures:
    """Step, save, step; load, step again: are the bits of all that a checkpoint holds the same?"""
    with _deterministic():
        first = rank.step(batches[0])
        rank.save(folder)
        saved = state_of(rank)
        rank.step(batches[1])
        expected = state_of(rank)
        rank.load(folder)
        loaded = state_of(rank)
        rank.step(batches[1])
        again = state_of(rank)
    return {
        "grad_norm": first["policy/grad_norm"],
        "is_finite": all(
            map(math.isfinite, (first["policy/grad_norm"], first["policy/final_loss"]))
        ),
        # Unless the step had changed something, equal bits would say nothing.
        "is_changed": not is_same(saved, expected),
        "is_restored": is_same(saved, loaded),
        "is_bit_equal": is_same(expected, again),
    }


@contextmanager
def _deterministic() -> Iterator[None]:
    """Let sums have the same order every time: those of attention's backward pass have not.

    Flash attention heeds this only where an operation without such an order is refused.
    """
    fills: bool = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(mode=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode=False)
        torch.utils.deterministic.fill_uninitialized_memory = fills  # type: ignore[attr-defined]


def state_of(rank: LearnerRank) -> dict[str, torch.Tensor]:
    """Copy all tensors that a checkpoint holds."""
    state = rank._state()  # noqa: SLF001 - the very thing that is saved
    return {name: tensor.cpu().clone() for name, tensor in state.tensors().items()}


def is_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Tell whether both have the same tensors, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
