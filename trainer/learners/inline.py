"""The learner of a single process: one rank that works in a thread beside the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import torch

from trainer.algo.sequences import Batch, SequenceValues
from trainer.inputs.model.families.family import CausalLM
from trainer.learners.model.models import LearnerOptions
from trainer.learners.rank import LearnerRank
from trainer.weights.base import Published
from trainer.weights.broadcast import free_address
from trainer.weights.chunks import WeightChunk, WeightChunks
from trainer.weights.digests import WeightDigests

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


class InlineLearner:
    """A `Learner` on a world of one, in this process."""

    def __init__(self, model: CausalLM, options: LearnerOptions | None = None) -> None:
        """Take over `model`: its weights are trained in place.

        Raises:
            SpecError: the architecture is not supported.
        """
        self.rank = LearnerRank(model, options)
        """The rank that does the work; its methods block."""

    @property
    def version(self) -> int:
        """Version of the weights: the number of calls of `step` over the whole run."""
        return self.rank.version

    @property
    def num_parameters(self) -> int:
        """Number of parameters of the policy; tied weights count once."""
        return self.rank.num_parameters

    async def step(self, batch: Batch) -> dict[str, float]:
        """Take one optimizer step per mini-batch; see `LearnerRank.step`.

        Raises:
            NonFiniteUpdate: loss or gradient is NaN or infinite; that update was not applied.
        """
        return await self._computed(self.rank.step, batch)

    async def take_token_values(self) -> tuple[SequenceValues, ...]:
        """See `Learner.take_token_values`."""
        return self.rank.take_token_values()

    def publish(self) -> Published:
        """Return a copy of the current weights, the tied head under its own name too."""
        return Published(weights=self.rank.weights(), version=self.rank.version)

    async def write_weights(self, path: Path) -> WeightDigests:
        """Write the current weights as one safetensors file and return the digests."""
        return await asyncio.to_thread(self.rank.write_weights, path)

    async def write_adapter(self, directory: Path) -> WeightDigests:
        """Write the adapter in peft's form and return the digests."""
        return await asyncio.to_thread(self.rank.write_adapter, directory)

    async def chunks(self) -> WeightChunks:
        """See `SendsChunks.chunks`."""
        return self.rank.sender.chunks(self.rank.version)

    async def address(self) -> str:
        """Return a free port of this machine."""
        return free_address()

    async def init_group(self, address: str, size: int) -> None:
        """See `SendsChunks.init_group`."""
        await asyncio.to_thread(self.rank.sender.init_group, address, size)

    async def send(self, chunk: WeightChunk) -> None:
        """See `SendsChunks.send`."""
        await asyncio.to_thread(self.rank.sender.send, chunk)

    async def export_ipc_handles(self, chunk: WeightChunk) -> list[bytes]:
        """See `SendsChunks.export_ipc_handles`."""
        return [await asyncio.to_thread(self.rank.sender.export_ipc_handles, chunk)]

    async def release_ipc_handles(self) -> None:
        """See `SendsChunks.release_ipc_handles`."""
        self.rank.sender.release_ipc_handles()

    async def digests(self) -> WeightDigests:
        """See `SendsChunks.digests`."""
        return self.rank.sender.digests()

    async def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Score a sequence: [T-1] float32 log-probs of token t+1 given tokens 0..t, at T=1."""
        return await self._computed(self.rank.logprobs, token_ids)

    def begin_save(self, directory: Path) -> Callable[[], None]:
        """Copy the state to save; see `Learner.begin_save`."""
        return self.rank.begin_save(directory)

    def save(self, directory: Path) -> None:
        """Copy and write the state; see `Learner.begin_save`."""
        self.rank.save(directory)

    def load(self, directory: Path) -> None:
        """Resume from a checkpoint of `save`; see `Learner.load`.

        Raises:
            CheckpointError: as `Learner.load`.
        """
        self.rank.load(directory)

    @cached_property
    def _thread(self) -> ThreadPoolExecutor:
        """One thread: in each torch works out anew how it computes on sharded tensors.

        That takes 0.1 s, and asyncio's pool would give each of the first steps another thread.
        """
        return ThreadPoolExecutor(max_workers=1, thread_name_prefix="learner")

    async def _computed(
        self, compute: Callable[[_Argument], _Result], argument: _Argument
    ) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, compute, argument)
