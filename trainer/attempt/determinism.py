"""Deterministic arithmetic: the same inputs give the same bits."""

from __future__ import annotations

import torch


def make_deterministic(seed: int) -> None:
    """Make torch compute on one thread, by algorithms that always sum in the same order.

    The random state of torch starts at `seed`; a checkpoint that is loaded later replaces it. The
    number of threads that share a sum decides its rounding, so every attempt must use the same
    number, whatever machine or `--threads` it gets.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    torch.manual_seed(seed)
