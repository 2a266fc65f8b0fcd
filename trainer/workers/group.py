"""Who does the work of an attempt: learner, engines, what carries weights, what rolls out.

`trainer.inline_crew` has all of them in the trainer's process; `trainer.placement` puts the same
parts into processes of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.engines.base import Engine, EngineStats, sum_stats
from trainer.learners.base import Learner
from trainer.recipe import Recipe
from trainer.rollouts.wave import Rolls
from trainer.weights.base import WeightSync
from trainer.weights.file import AdapterOf, FileSync, TakesFile, WritesAdapter, WritesWeights
from trainer.weights.pieces import CollectiveSync, LentSync, SendsPieces, TakesPieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that happened to a worker, and was mended."""

    code: str
    message: str


async def _fresh() -> None:
    """Counters of an engine in this process are never old."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samplers:
    """The workers of an attempt that only rolls out."""

    engines: tuple[Engine, ...]
    """Every copy of the policy that samples."""
    rolls: Rolls
    engine_name: str
    """As `trainer.started` reports it."""
    fallback: str | None
    """Why `engine.type: auto` did not take vLLM."""
    close: Callable[[], Awaitable[None]]
    abandon: Callable[[], None] = lambda: None
    """Give back at once what outlives the trainer; `close` does it too."""
    refresh: Callable[[], Awaitable[None]] = _fresh
    """Bring the counters of the engines up to date."""
    notices: Callable[[], tuple[Notice, ...]] = tuple
    """What happened since it was last asked."""

    def engine_stats(self) -> EngineStats:
        """Counters of all engines together."""
        return sum_stats([engine.stats() for engine in self.engines])


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew(Samplers):
    """The workers of an attempt that trains or evaluates: each engine has to pass the canary."""

    learner: Learner
    weights: WeightSync
    canary_tolerance: float | None = None
    """Gap that the canary allows, where the precisions in the spec do not say."""
    keep_only: Callable[[Collection[str]], None] = lambda _: None
    """Told after each save which checkpoints of the run there are, by path: what is kept elsewhere
    for others may go. Blocks."""


class WritesBoth(WritesWeights, WritesAdapter, Protocol):
    """What the learners of every crew can do."""


def what_travels(recipe: Recipe, learner: WritesBoth) -> WritesWeights:
    """Return what writes the weights that go to the engines: all of them, or the adapter."""
    is_adapter = recipe.spec.engine.weight_transport == "lora"
    return AdapterOf(learner) if is_adapter else learner


class Sends(WritesBoth, SendsPieces, Protocol):
    """A learner whose weights can go every way there is to engines in other processes."""


def weight_sync(
    recipe: Recipe, learner: Sends, engines: Sequence[Engine], *, keeps: bool
) -> WeightSync:
    """Make the way that the weights go; for `keeps` see `FileSync`."""
    spec = recipe.spec.engine
    if spec.is_direct:
        takes = [engine for engine in engines if isinstance(engine, TakesPieces)]
        way = LentSync if spec.weight_transport == "ipc" else CollectiveSync
        return way(learner, takes)
    files = [engine for engine in engines if isinstance(engine, TakesFile)]
    return FileSync(what_travels(recipe, learner), files, recipe.weights_dir, keeps=keeps)
