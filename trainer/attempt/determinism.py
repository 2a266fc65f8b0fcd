"""Arithmetic that gives the same bits every time."""

from __future__ import annotations

import torch


def make_deterministic(seed: int) -> None:
    """Let this process compute on one thread, by algorithms that always sum in the same order.

    The random state of torch begins at `seed`; a checkpoint that is loaded later replaces it.
    How many threads share a sum decides its rounding, so a run that goes on elsewhere, or under
    another `--threads`, must use as many as it began with.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    torch.manual_seed(seed)
