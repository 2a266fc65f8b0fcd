"""Worker group of an attempt: learner, engines, weight sync and rollout runner.

`trainer.workers.local` makes all of them in the trainer's process; `trainer.workers.ray` places
them as Ray actors in processes of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer.engines.base import Engine, EngineStats, sum_stats
from trainer.learners.base import Learner
from trainer.rollouts.request import RolloutRunner
from trainer.weights.base import TimedSync, WeightSync
from trainer.weights.chunks import BroadcastSync, IpcSync, LoadsChunks, SendsChunks
from trainer.weights.file_system import (
    AdapterOf,
    FileSystemSync,
    LoadsFile,
    WritesAdapter,
    WritesWeights,
)
from trainer.workers.factory import WorkerFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRestarted:
    """Warning: a worker died and was restarted."""

    code: str
    message: str


async def _fresh() -> None:
    """Do nothing: counters of an engine in this process are always current."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingWorkers:
    """The workers of an attempt that only rolls out: engines and rollout runner."""

    engines: tuple[Engine, ...]
    """Every copy of the policy that samples."""
    rollout_runner: RolloutRunner
    engine_name: str
    """As `trainer.started` reports it."""
    fallback: str | None
    """Reason why `engine.type: auto` did not choose vLLM."""
    close: Callable[[], Awaitable[None]]
    abandon: Callable[[], None] = lambda: None
    """Release at once the resources that would outlive the trainer; `close` does it too."""
    refresh: Callable[[], Awaitable[None]] = _fresh
    """Update the counters of the engines."""
    notices: Callable[[], tuple[WorkerRestarted, ...]] = tuple
    """Return and clear the restarts since the last call."""

    def engine_stats(self) -> EngineStats:
        """Return the counters of all engines added up."""
        return sum_stats([engine.stats() for engine in self.engines])


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerGroup(SamplingWorkers):
    """The workers of an attempt that trains or evaluates: each engine has to pass the canary."""

    learner: Learner
    weights: WeightSync
    canary_tolerance: float | None = None
    """Gap that the canary allows; None where the precisions in the spec decide it."""
    keep_only: Callable[[Collection[str]], None] = lambda _: None
    """Called after each save with the paths of the run's remaining checkpoints: deletes the state
    that a server keeps for any other. Blocks."""


class WritesBothForms(WritesWeights, WritesAdapter, Protocol):
    """A learner of any worker group: writes whole weights or the adapter."""


def weights_to_sync(factory: WorkerFactory, learner: WritesBothForms) -> WritesWeights:
    """Return the writer of the weights to sync: all of them, or the adapter alone."""
    is_adapter = factory.spec.engine.weight_transport == "lora"
    return AdapterOf(learner) if is_adapter else learner


class SendsWeights(WritesBothForms, SendsChunks, Protocol):
    """A learner that supports every weight transport to engines in other processes."""


def weight_sync(
    factory: WorkerFactory, learner: SendsWeights, engines: Sequence[Engine], *, keep_newest: bool
) -> WeightSync:
    """Make the weight sync of the spec's transport; for `keep_newest` see `FileSystemSync`."""
    spec = factory.spec.engine
    if spec.is_direct:
        loaders = [engine for engine in engines if isinstance(engine, LoadsChunks)]
        sync = IpcSync if spec.weight_transport == "ipc" else BroadcastSync
        return TimedSync(sync(learner, loaders))
    files = [engine for engine in engines if isinstance(engine, LoadsFile)]
    written = weights_to_sync(factory, learner)
    return TimedSync(FileSystemSync(written, files, factory.weights_dir, keep_newest=keep_newest))
