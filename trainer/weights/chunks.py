"""Weights straight from the learner's processes to the engine's, a piece of the model at a time.

Two ways: `Collective`, where the learner's first rank broadcasts to all processes that hold the
model (NCCL between GPUs, gloo between CPUs), and `Lent`, where a rank lets the engine beside it
look at its own memory (CUDA IPC on a GPU, shared memory on a CPU). Nothing is written, and no more
than a piece of the whole model exists at once. An engine that dies cannot be started again with
what it drew with: the attempt ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias, TypeVar, runtime_checkable

import torch

from trainer.errors import EngineError, TrainerError
from trainer.weights.manifest import Manifest, demand_same

T = TypeVar("T")

PIECE_BYTES = 1 << 30
"""Most bytes of a piece, unless one tensor alone has more."""


@dataclass(frozen=True, slots=True)
class TensorShape:
    """A tensor that is sent."""

    name: str
    """As Hugging Face has it."""
    dtype: str
    """As torch has it, without `torch.`."""
    shape: tuple[int, ...]
    num_bytes: int


Piece: TypeAlias = tuple[TensorShape, ...]


def in_pieces(tensors: Iterable[TensorShape], limit: int = PIECE_BYTES) -> tuple[Piece, ...]:
    """Cut a model, in the order given, into pieces of `limit` bytes or one tensor."""
    pieces: list[list[TensorShape]] = []
    size = 0
    for tensor in tensors:
        if not pieces or size + tensor.num_bytes > limit:
            pieces.append([])
            size = 0
        pieces[-1].append(tensor)
        size += tensor.num_bytes
    return tuple(tuple(piece) for piece in pieces)


def cut(whole: torch.Tensor, piece: Piece) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the piece's tensors, which come one after the other, by their names."""
    sizes = [prod(tensor.shape) for tensor in piece]
    for tensor, part in zip(piece, torch.split(whole, sizes), strict=True):
        yield tensor.name, part.view(tensor.shape)


def num_values(piece: Piece) -> int:
    """Return how many numbers a piece has."""
    return sum(prod(tensor.shape) for tensor in piece)


@dataclass(frozen=True, slots=True)
class Pieces:
    """The model of a version."""

    version: int
    pieces: tuple[Piece, ...]


class SendsPieces(Protocol):
    """The learner's side."""

    async def pieces(self) -> Pieces:
        """Say what there is to send, the tied head under its own name too."""
        ...

    async def address(self) -> str:
        """Return `HOST:PORT` where others can meet the first rank."""
        ...

    async def meet(self, address: str, size: int) -> None:
        """Let the first rank be number 0 of `size` processes at `address`."""
        ...

    async def send(self, piece: Piece) -> None:
        """Let the first rank broadcast the piece's tensors; the others help to gather them."""
        ...

    async def lend(self, piece: Piece) -> list[bytes]:
        """Return for each rank what gives the piece's tensors to a process beside it.

        They stay as they are until the next call, or `take_back`.
        """
        ...

    async def take_back(self) -> None:
        """Forget what was lent."""
        ...

    async def sent(self) -> Manifest:
        """Return what was broadcast or lent since `pieces` was last asked."""
        ...


@runtime_checkable
class TakesPieces(Protocol):
    """An engine's side."""

    @property
    def num_processes(self) -> int:
        """How many processes hold the model together."""
        ...

    async def meet(self, address: str, first: int, size: int) -> None:
        """Let its processes be numbers `first`, `first` + 1 ... of `size` at `address`."""
        ...

    async def begin_update(self) -> None:
        """Pause what is in flight."""
        ...

    async def take_piece(self, piece: Piece, lent: bytes | None) -> None:
        """Take the piece's tensors from the broadcast, or from what was lent.

        Raises:
            EngineError: they were not taken.
        """
        ...

    async def finish_update(self, version: int) -> Manifest:
        """Go on with the new weights, and return what they turned out to be."""
        ...


class PieceSync:
    """What both ways have in common: every engine pauses, takes all pieces, and goes on."""

    def __init__(self, learner: SendsPieces, engines: Sequence[TakesPieces]) -> None:
        self._learner = learner
        self._engines = tuple(engines)

    async def sync(self) -> None:
        """See `WeightSync.sync`."""
        model = await self._learner.pieces()
        await self._prepare()
        await _all(engine.begin_update() for engine in self._engines)
        for piece in model.pieces:
            await self._hand_over(piece)
        held = await _all(engine.finish_update(model.version) for engine in self._engines)
        demand_same(await self._learner.sent(), held)

    async def _prepare(self) -> None: ...

    async def _hand_over(self, piece: Piece) -> None:
        raise NotImplementedError


class CollectiveSync(PieceSync):
    """By broadcast; the processes meet once, at the first sync."""

    _has_met = False

    async def _prepare(self) -> None:
        if self._has_met:
            return
        address = await self._learner.address()
        size = 1 + sum(engine.num_processes for engine in self._engines)
        first, meetings = 1, list[Awaitable[None]]()
        for engine in self._engines:
            meetings.append(engine.meet(address, first, size))
            first += engine.num_processes
        await _all([self._learner.meet(address, size), *meetings])
        self._has_met = True

    async def _hand_over(self, piece: Piece) -> None:
        taking = [engine.take_piece(piece, None) for engine in self._engines]
        await _all([self._learner.send(piece), *taking])


class LentSync(PieceSync):
    """By letting engine number i look at the memory of rank i."""

    async def _hand_over(self, piece: Piece) -> None:
        lent = await self._learner.lend(piece)
        pairs = zip(self._engines, lent, strict=True)
        try:
            await _all(engine.take_piece(piece, each) for engine, each in pairs)
        finally:
            await self._learner.take_back()


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all and return their answers.

    The end of one is told to the others by what carries the tensors. Whose failure was first says
    little about whose fault it was, so the message names each.
    """
    answers = await asyncio.gather(*calls, return_exceptions=True)
    faults = [answer for answer in answers if isinstance(answer, BaseException)]
    named = [fault for fault in faults if isinstance(fault, TrainerError)]
    if len(named) > 1:
        raise EngineError("; ".join(str(fault) for fault in named)) from named[0]
    for fault in (*named, *faults):
        raise fault
    return [answer for answer in answers if not isinstance(answer, BaseException)]
