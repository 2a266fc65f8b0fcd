"""What runs in each process: plain classes, which know of Ray only where they are.

Every reply of an engine says which life of the process it comes from: Ray starts a process that
died again, repeats what it had not answered, and tells nobody.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import ray
import torch

from trainer.algo.sequences import Batch
from trainer.engines.base import Engine, EngineStats
from trainer.errors import EngineError
from trainer.loading import importing
from trainer.recipe import Recipe
from trainer.rollouts.wave import Rollout, Wave
from trainer.storage import space_checked
from trainer.types import Sample, SamplingParams, Task
from trainer.weights.channel import free_address
from trainer.weights.file import TakesFile, newest_weights
from trainer.weights.manifest import Manifest
from trainer.weights.pieces import Piece, Pieces, TakesPieces

if TYPE_CHECKING:
    # Only one of the three workers needs each (`trainer.loading`).
    from trainer.engines.choose import ChosenEngine
    from trainer.learners.rank import LearnerRank
    from trainer.rollouts.roller import Roller

T = TypeVar("T")
SHOWN = "shared-disk"
"""File of an attempt that shows its workers on other machines whether they share its disk."""
LOOKS = "looks"
"""Ray's concurrency group of calls that are answered whatever else a worker does."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """An answer, and who gave it."""

    value: T
    life: str
    """Another one after the process was started again."""
    up_s: float = 0.0
    """Of an engine that drew or scored: seconds for which it had been able to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What an engine turned out to be."""

    name: str
    fallback: str | None


def _use_one_thread() -> None:
    """Whatever Ray was started with: on shared cores, threads that spin make all of them slower."""
    torch.set_num_threads(1)


def _sees(recipe: Recipe, nonce: str) -> bool:
    try:
        return (recipe.attempt_dir / SHOWN).read_text() == nonce
    except OSError:
        return False


class EngineWorker:
    """One engine. Started again, it takes the weights of the last sync before it samples."""

    def __init__(self, recipe: Recipe) -> None:
        _use_one_thread()
        self._recipe = recipe
        self._life = uuid.uuid4().hex
        self._chosen: ChosenEngine | None = None
        self._held: Manifest | None = None
        self._starting = asyncio.Lock()
        self._ready_since = math.inf

    async def sees(self, nonce: str) -> bool:
        """Tell whether the attempt's directory is here the one that the trainer writes to."""
        return await asyncio.to_thread(_sees, self._recipe, nonce)

    async def start(self) -> EngineFacts:
        """Start the engine, if it does not run, and say which one it is.

        Raises:
            SpecError, EngineError: as `Recipe.make_engine`.
        """
        chosen = await self._started()
        return EngineFacts(name=chosen.name, fallback=chosen.fallback)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, session: str, prefix_key: str
    ) -> Reply[tuple[Sample, EngineStats]]:
        """See `Engine.sample`; an engine whose own processes died takes this one with it."""
        engine = await self._engine()
        with _ending_with(engine):
            sample = await engine.sample(prompt_ids, params, session=session, prefix_key=prefix_key)
        return Reply((sample, engine.stats()), self._life, self._up_s())

    @ray.method(concurrency_group=LOOKS)
    async def look(self) -> float | None:
        """Return the seconds for which it has been able to draw; None while the model is loaded.

        Answered in a thread of its own, also while the engine computes or loads.
        """
        up_s = self._up_s()
        return up_s if up_s >= 0.0 else None

    async def stats(self) -> Reply[EngineStats]:
        """See `Engine.stats`."""
        return Reply((await self._engine()).stats(), self._life)

    async def release(self, session: str) -> None:
        """See `Engine.release`."""
        if self._chosen is not None:
            self._chosen.engine.release(session)

    async def logprobs(self, token_ids: Sequence[int]) -> Reply[tuple[torch.Tensor, EngineStats]]:
        """See `Engine.logprobs`."""
        engine = await self._engine()
        with _ending_with(engine):
            logprobs = await engine.logprobs(token_ids)
        return Reply((logprobs, engine.stats()), self._life, self._up_s())

    async def take_file(self, path: Path, version: int) -> Reply[Manifest]:
        """Draw from the weights in `path` from now on, and say what they are."""
        engine = await self._engine()
        if self._held is None or self._held.version != version or version == 0:
            with _ending_with(engine):
                self._held = await _taking(engine).take_file(path, version)
        return Reply(self._held, self._life)

    async def meet(self, address: str, first: int, size: int) -> None:
        """See `TakesPieces.meet`."""
        await _taking_pieces(await self._engine()).meet(address, first, size)

    async def begin_update(self) -> None:
        """See `TakesPieces.begin_update`."""
        await _taking_pieces(await self._engine()).begin_update()

    async def take_piece(self, piece: Piece, lent: bytes | None) -> None:
        """See `TakesPieces.take_piece`."""
        await _taking_pieces(await self._engine()).take_piece(piece, lent)

    async def finish_update(self, version: int) -> Reply[Manifest]:
        """See `TakesPieces.finish_update`."""
        held = await _taking_pieces(await self._engine()).finish_update(version)
        return Reply(held, self._life)

    async def close(self) -> None:
        """Stop the engine's own processes."""
        if self._chosen is not None:
            await self._chosen.engine.close()

    async def _engine(self) -> Engine:
        return (await self._started()).engine

    def _up_s(self) -> float:
        return time.monotonic() - self._ready_since

    async def _started(self) -> ChosenEngine:
        async with self._starting:
            if self._chosen is None:
                chosen = self._recipe.make_engine()
                weights = newest_weights(self._recipe.weights_dir)
                if weights is not None:
                    taking = _taking(chosen.engine).take_file(weights.path, weights.version)
                    self._held = await taking
                self._chosen = chosen
                self._ready_since = time.monotonic()
            return self._chosen


@contextmanager
def _ending_with(engine: Engine) -> Iterator[None]:
    """End this process if the engine's own ones died: Ray starts it again, and asks again."""
    try:
        yield
    except EngineError:
        if getattr(engine, "is_dead", False):
            os._exit(1)
        raise


def _taking(engine: Engine) -> TakesFile:
    if not isinstance(engine, TakesFile):
        raise TypeError(f"{type(engine).__name__} does not take files")
    return engine


def _taking_pieces(engine: Engine) -> TakesPieces:
    if not isinstance(engine, TakesPieces):
        raise TypeError(f"{type(engine).__name__} does not take pieces")
    return engine


class LearnerWorker:
    """One rank of the learner; `main` and `save` calls may run at once."""

    def __init__(self, recipe: Recipe, rank: int, size: int) -> None:
        _use_one_thread()
        self._recipe = recipe
        self._number, self._size = rank, size
        self._rank: LearnerRank | None = None
        self._finish: Callable[[], None] | None = None
        self._saved_in = Path()

    def sees(self, nonce: str) -> bool:
        """See `EngineWorker.sees`."""
        return _sees(self._recipe, nonce)

    def address(self) -> str:
        """Where others can meet this rank: a free port of its machine, as the cluster knows it."""
        return free_address(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def start(self, address: str) -> int:
        """Load the model, meet the others, and return how many parameters it has."""
        with importing():
            from trainer.learners.sharding import World  # noqa: PLC0415 - see trainer.loading
        world = World(
            rank=self._number,
            size=self._size,
            init_method=f"tcp://{address}",
            device=_device(),
        )
        self._rank = self._recipe.make_rank(world)
        return self._rank.num_parameters

    def step(self, batch: Batch) -> tuple[dict[str, float], int]:
        """Return the metrics and the new version; see `LearnerRank.step`."""
        metrics = self.rank.step(batch)
        return metrics, self.rank.version

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """See `LearnerRank.logprobs`."""
        return self.rank.logprobs(token_ids)

    def write_weights(self, path: Path) -> Manifest:
        """See `LearnerRank.write_weights`; a full disk is named where it is met."""
        with space_checked(path.parent):
            return self.rank.write_weights(path)

    def write_adapter(self, directory: Path) -> Manifest:
        """See `LearnerRank.write_adapter`."""
        with space_checked(directory.parent):
            return self.rank.write_adapter(directory)

    def pieces(self) -> Pieces:
        """See `Sender.pieces`."""
        return self.rank.sender.pieces(self.rank.version)

    def meet(self, address: str, size: int) -> None:
        """See `Sender.meet`."""
        self.rank.sender.meet(address, size)

    def send(self, piece: Piece) -> None:
        """See `Sender.send`."""
        self.rank.sender.send(piece)

    def lend(self, piece: Piece) -> bytes:
        """See `Sender.lend`."""
        return self.rank.sender.lend(piece)

    def take_back(self) -> None:
        """See `Sender.take_back`."""
        self.rank.sender.take_back()

    def sent(self) -> Manifest:
        """See `Sender.sent`."""
        return self.rank.sender.sent()

    def begin_save(self, directory: Path) -> None:
        """Copy what there is to save; `finish_save` writes it."""
        self._saved_in = directory
        with space_checked(directory):
            self._finish = self.rank.begin_save(directory)

    def finish_save(self) -> None:
        """Write what `begin_save` has copied."""
        finish, self._finish = self._finish, None
        if finish is not None:
            with space_checked(self._saved_in):
                finish()

    def load(self, directory: Path) -> int:
        """Go on from a checkpoint and return its version."""
        self.rank.load(directory)
        return self.rank.version

    @property
    def rank(self) -> LearnerRank:
        """What does the work."""
        if self._rank is None:
            raise RuntimeError("the rank was not started")
        return self._rank


def _device() -> str:
    return "cuda:0" if torch.cuda.is_available() else "cpu"


class RolloutWorker:
    """Rolls out on engines that are somewhere else."""

    def __init__(self, recipe: Recipe, engine: Engine, number: int) -> None:
        _use_one_thread()
        self._life = uuid.uuid4().hex
        self._roller: Roller = recipe.make_roller(engine, worker=number)

    async def ready(self) -> None:
        """Answer: tokenizer and environments are loaded."""

    async def roll(self, task: Task, sample_index: int, wave: Wave) -> Reply[Rollout]:
        """See `Rolls.roll`."""
        return Reply(await self._roller.roll(task, sample_index, wave), self._life)

    async def close(self) -> None:
        """See `Roller.close`."""
        await self._roller.close()
