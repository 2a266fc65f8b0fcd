"""The learner of one process: one rank, its work done in a thread beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from trainer.algo.sequences import Batch
from trainer.learners.base import Published
from trainer.learners.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.weights.channel import free_address
from trainer.weights.manifest import Manifest
from trainer.weights.pieces import Piece, Pieces


class InlineLearner:
    """A `Learner` on a world of one, in this process."""

    def __init__(self, model: Qwen3ForCausalLM, options: LearnerOptions | None = None) -> None:
        """Take over `model`: its weights are trained in place.

        Raises:
            SpecError: the architecture is not supported.
        """
        self.rank = LearnerRank(model, options)
        """What does the work; its methods block."""

    @property
    def version(self) -> int:
        """How many times `step` has run over the life of the run."""
        return self.rank.version

    @property
    def num_parameters(self) -> int:
        """How many parameters the policy has; tied weights count once."""
        return self.rank.num_parameters

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `LearnerRank.step`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        return await asyncio.to_thread(self.rank.step, batch)

    def publish(self) -> Published:
        """Return a copy of the current weights, the tied head under its own name too."""
        return Published(weights=self.rank.weights(), version=self.rank.version)

    async def write_weights(self, path: Path) -> Manifest:
        """Write the current weights as one safetensors file and return what is in it."""
        return await asyncio.to_thread(self.rank.write_weights, path)

    async def write_adapter(self, directory: Path) -> Manifest:
        """Write the adapter in peft's form and return what is in it."""
        return await asyncio.to_thread(self.rank.write_adapter, directory)

    async def pieces(self) -> Pieces:
        """See `SendsPieces.pieces`."""
        return self.rank.sender.pieces(self.rank.version)

    async def address(self) -> str:
        """Return a free port of this machine."""
        return free_address()

    async def meet(self, address: str, size: int) -> None:
        """See `SendsPieces.meet`."""
        await asyncio.to_thread(self.rank.sender.meet, address, size)

    async def send(self, piece: Piece) -> None:
        """See `SendsPieces.send`."""
        await asyncio.to_thread(self.rank.sender.send, piece)

    async def lend(self, piece: Piece) -> list[bytes]:
        """See `SendsPieces.lend`."""
        return [await asyncio.to_thread(self.rank.sender.lend, piece)]

    async def take_back(self) -> None:
        """See `SendsPieces.take_back`."""
        self.rank.sender.take_back()

    async def sent(self) -> Manifest:
        """See `SendsPieces.sent`."""
        return self.rank.sender.sent()

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        return await asyncio.to_thread(self.rank.logprobs, token_ids)

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy what there is to save; see `Learner.begin_save`."""
        return self.rank.begin_save(directory)

    def save(self, directory: Path) -> None:
        """Save at once."""
        self.rank.save(directory)

    def load(self, directory: Path) -> None:
        """Go on from what `save` wrote; see `Learner.load`.

        Raises:
            CheckpointError: as `Learner.load`.
        """
        self.rank.load(directory)
