"""The learner port: takes the gradient steps and owns the weights of record.

Narrow on purpose: a batch goes in, weights come out. The number of processes that share the work
is hidden, so a sharded learner implements the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from trainer.algo.sequences import Batch, SequenceValues


class Learner(Protocol):
    """Holds policy and optimizer; the algorithm and optimizer settings are fixed at construction.

    Only one coroutine of a learner runs at a time.
    """

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch and return the metrics of the whole batch.

        Names are those of SkyRL (`policy/final_loss`, `policy/grad_norm` ...). A batch without
        sequences, or without a gradient, changes no weight and still counts as a version. The work
        runs in a worker thread; the event loop stays free. The seconds spent on scoring by other
        policies are always reported, as `timing/` and `trainer.attempt.timing.SCORING`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        ...

    async def take_token_values(self) -> tuple[SequenceValues, ...]:
        """Return, and forget, the values of the tokens that the last `step` learned from.

        In any order; empty where the learner was made without `store_token_values`.
        """
        ...

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        ...

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy everything `load` needs; the returned function writes it under `directory`.

        That function may run in another thread while training continues: later updates are not in
        the files.

        `policy/` is a Hugging Face directory that plain transformers and vLLM load; `learner/`
        holds the weights of record, optimizer, counters and random state; where an adapter is
        trained, `adapter/` has it in peft's form. A learner with its weights on a server writes
        their location into `learner/`, and no `policy/`.
        """
        ...

    def load(self, directory: Path) -> None:
        """Resume from a checkpoint of `begin_save`: weights, optimizer, counters and random state.

        Raises:
            CheckpointError: a file is missing, unreadable, or of another architecture; or the
                frozen weights, under adapters or as the reference, are not those of the saved run.
        """
        ...

    @property
    def version(self) -> int:
        """Version of the weights: the number of calls of `step` over the whole run."""
        ...

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the policy; tied weights count once."""
        ...
