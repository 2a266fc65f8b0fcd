"""The learner port: who takes the gradient step and owns the weights of record.

Narrow on purpose: a batch goes in, weights come out. Nothing here says how many processes share
the work, so a sharded learner implements the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch

from trainer.algo.sequences import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Weights for the engines, with the version they are known by."""

    weights: Mapping[str, torch.Tensor]
    """By Hugging Face name, the tied `lm_head.weight` always included; detached, read-only: they
    are valid until the next `step` or `load`."""
    version: int


class Learner(Protocol):
    """Holds policy and optimizer; the algorithm and optimizer settings are given at construction.

    Only one coroutine of a learner runs at a time.
    """

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch and return the metrics of the whole batch.

        Names are those of SkyRL (`policy/final_loss`, `policy/grad_norm` ...). A batch without
        sequences, or without a gradient, changes no weight and still counts as a version. The work
        is done in a worker thread; the event loop stays free. The seconds spent on scoring by other
        policies are always given, as `timing/` and `trainer.timing.SCORING`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        ...

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        ...

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy everything `load` needs; what is returned writes it under `directory`.

        The returned function may run in another thread while training goes on: what is learned in
        between is not in the files.

        `policy/` is a Hugging Face directory that plain transformers and vLLM load; `learner/`
        holds the weights of record, optimizer, counters and random state; where an adapter is
        trained, `adapter/` has it in peft's form. A learner whose weights are kept elsewhere writes
        into `learner/` where that is, and no `policy/`.
        """
        ...

    def load(self, directory: Path) -> None:
        """Go on from what `begin_save` wrote: weights, optimizer, counters and random state.

        Raises:
            CheckpointError: a file is missing, unreadable, or of another architecture; or what is
                frozen, under adapters or as the reference, is not what the saved run started from.
        """
        ...

    @property
    def version(self) -> int:
        """How many times `step` has run over the life of the run: the weights' version."""
        ...

    @property
    def num_parameters(self) -> int:
        """How many parameters the policy has; tied weights count once."""
        ...
