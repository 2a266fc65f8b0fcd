"""Weight sync straight from the learner's processes to the engines', chunk by chunk.

Two transports: `BroadcastSync`, in which the learner's first rank broadcasts to all processes of
the engines (NCCL between GPUs, gloo between CPUs), and `IpcSync`, in which the engine beside a rank
maps its memory (CUDA IPC on a GPU, shared memory on a CPU). Nothing is written, and only one chunk
of the whole model exists at once. An engine that dies cannot be restarted with the
weights that it sampled with: the attempt ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import torch

from hillclimb.hardware.memory.engine import MAX_CHUNK_BYTES
from trainer.errors import EngineError, TrainerError
from trainer.weights.digests import WeightDigests, assert_same_weights

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TensorShape:
    """Name, type and shape of a tensor to send."""

    name: str
    """As Hugging Face has it."""
    dtype: str
    """As torch has it, without `torch.`."""
    shape: tuple[int, ...]
    num_bytes: int


WeightChunk: TypeAlias = tuple[TensorShape, ...]
"""Tensors that are sent together, as one flat tensor: their values one after the other."""


def chunk_weights(
    tensors: Iterable[TensorShape], limit: int = MAX_CHUNK_BYTES
) -> tuple[WeightChunk, ...]:
    """Cut a model, in the order of `tensors`, into chunks of `limit` bytes or one tensor.

    All tensors of a chunk have one precision: they are sent as one tensor.
    """
    chunks: list[list[TensorShape]] = []
    size = 0
    for tensor in tensors:
        is_other = bool(chunks) and chunks[-1][0].dtype != tensor.dtype
        if not chunks or is_other or size + tensor.num_bytes > limit:
            chunks.append([])
            size = 0
        chunks[-1].append(tensor)
        size += tensor.num_bytes
    return tuple(tuple(chunk) for chunk in chunks)


def split_chunk(flat: torch.Tensor, chunk: WeightChunk) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the chunk's tensors with their names, as views of the flat tensor `whole`."""
    sizes = [prod(tensor.shape) for tensor in chunk]
    for tensor, part in zip(chunk, torch.split(flat, sizes), strict=True):
        yield tensor.name, part.view(tensor.shape)


def num_values(chunk: WeightChunk) -> int:
    """Return the number of values in a chunk."""
    return sum(prod(tensor.shape) for tensor in chunk)


@dataclass(frozen=True, slots=True)
class WeightChunks:
    """Chunks of the whole model at one version."""

    version: int
    chunks: tuple[WeightChunk, ...]


class SendsChunks(Protocol):
    """The learner's side of the transfer."""

    async def chunks(self) -> WeightChunks:
        """Return the chunks to send, the tied head under its own name too."""
        ...

    async def address(self) -> str:
        """Return `HOST:PORT` at which the first rank can form a broadcast group."""
        ...

    async def init_group(self, address: str, size: int) -> None:
        """Join the broadcast group of `size` processes at `address`, as its rank 0."""
        ...

    async def send(self, chunk: WeightChunk) -> None:
        """Broadcast the chunk's tensors from the first rank; the others gather the shards."""
        ...

    async def export_ipc_handles(self, chunk: WeightChunk) -> list[bytes]:
        """Return per rank a handle from which a process of its machine maps the chunk's tensors.

        The memory stays valid until the next call, or `release_ipc_handles`.
        """
        ...

    async def release_ipc_handles(self) -> None:
        """Free the memory behind the last handles."""
        ...

    async def digests(self) -> WeightDigests:
        """Return the digests of all chunks sent since the last call of `chunks`."""
        ...


@runtime_checkable
class LoadsChunks(Protocol):
    """An engine's side of the transfer."""

    @property
    def num_processes(self) -> int:
        """Number of processes over which the model is split."""
        ...

    async def init_group(self, address: str, first: int, size: int) -> None:
        """Join the group of `size` at `address`, as its ranks `first`, `first` + 1 ..."""
        ...

    async def start_update(self) -> None:
        """Pause the requests in flight."""
        ...

    async def load_chunk(self, chunk: WeightChunk, ipc_handle: bytes | None) -> None:
        """Load the chunk's tensors from the IPC handle, or from the broadcast where it is None.

        Raises:
            EngineError: they were not loaded.
        """
        ...

    async def finish_update(self, version: int) -> WeightDigests:
        """Resume with the new weights, and return their digests."""
        ...


class ChunkSync:
    """Base of both transports: every engine pauses, loads all chunks, and resumes."""

    def __init__(self, learner: SendsChunks, engines: Sequence[LoadsChunks]) -> None:
        self._learner = learner
        self._engines = tuple(engines)

    async def sync(self) -> None:
        """See `WeightSync.sync`."""
        model = await self._learner.chunks()
        await self._prepare()
        await _all(engine.start_update() for engine in self._engines)
        for chunk in model.chunks:
            await self._transfer(chunk)
        digests = await _all(engine.finish_update(model.version) for engine in self._engines)
        assert_same_weights(await self._learner.digests(), digests)

    async def _prepare(self) -> None: ...

    async def _transfer(self, chunk: WeightChunk) -> None:
        raise NotImplementedError


class BroadcastSync(ChunkSync):
    """Weight sync by broadcast; the group is formed once, at the first sync."""

    _is_connected = False

    async def _prepare(self) -> None:
        if self._is_connected:
            return
        address = await self._learner.address()
        size = 1 + sum(engine.num_processes for engine in self._engines)
        # Rank 0 is the learner's; every engine takes as many ranks as it has processes.
        first, joining = 1, list[Awaitable[None]]()
        for engine in self._engines:
            joining.append(engine.init_group(address, first, size))
            first += engine.num_processes
        # At once: each call returns only when all members are there.
        await _all([self._learner.init_group(address, size), *joining])
        self._is_connected = True

    async def _transfer(self, chunk: WeightChunk) -> None:
        loading = [engine.load_chunk(chunk, None) for engine in self._engines]
        await _all([self._learner.send(chunk), *loading])


class IpcSync(ChunkSync):
    """Weight sync by IPC handles: engine i maps the memory of rank i."""

    async def _transfer(self, chunk: WeightChunk) -> None:
        handles = await self._learner.export_ipc_handles(chunk)
        pairs = zip(self._engines, handles, strict=True)
        try:
            await _all(engine.load_chunk(chunk, handle) for engine, handle in pairs)
        finally:
            await self._learner.release_ipc_handles()


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Await all calls and return their results.

    When one side fails, the transport fails the others too (a broken group, a time-out). The order
    of failures says little about the cause, so the message names each.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    named = [fault for fault in faults if isinstance(fault, TrainerError)]
    if len(named) > 1:
        raise EngineError("; ".join(str(fault) for fault in named)) from named[0]
    for fault in (*named, *faults):
        raise fault
    return [answer for answer in answers if not isinstance(answer, BaseException)]
