"""Ray actors, one process each: an engine, a learner rank, a rollout worker.

Every reply of an engine names the incarnation of the process that it comes from: Ray restarts a
process that died, repeats its unanswered calls, and notifies nobody.
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

from hillclimb.environment.task import Task
from hillclimb.process.lazy_imports import gc_paused_import
from trainer.algo.sequences import Batch, SequenceValues
from trainer.attempt.storage import raise_storage_full
from trainer.engines.admission import UNLIMITED, AdmitsRollouts, CacheClaim
from trainer.engines.base import Engine, EngineStats, Sleeps
from trainer.errors import EngineError
from trainer.rollouts.request import Rollout, RolloutRequest
from trainer.types import Sample, SamplingParams
from trainer.weights.broadcast import free_address
from trainer.weights.chunks import LoadsChunks, WeightChunk, WeightChunks
from trainer.weights.digests import WeightDigests
from trainer.weights.file_system import LoadsFile, newest_weights
from trainer.workers.factory import WorkerFactory

if TYPE_CHECKING:
    # Only one of the three workers needs each (`hillclimb.process.lazy_imports`).
    from trainer.engines.choose import ChosenEngine
    from trainer.learners.rank import LearnerRank
    from trainer.rollouts.worker import RolloutWorker

T = TypeVar("T")
DISK_PROBE = "shared-disk"
"""Probe file in the attempt's directory, which workers on other machines read if they share it."""
HEALTH_GROUP = "health"
"""Ray concurrency group of the health check: it is answered while other calls occupy the actor."""


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """A result, and the incarnation of the process that computed it."""

    value: T
    incarnation: str
    """Random id of the process; a restart draws a new one."""
    up_s: float = 0.0
    """Seconds for which the engine had been ready; only on replies of sampling and scoring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Name of the engine that a worker made, and the reason for a fallback."""

    name: str
    fallback: str | None


MAX_RANK_THREADS = 16
"""Threads of a rank beside a GPU: AdamW over offloaded weights is bound by memory, not by cores."""
ALLOCATOR = "PYTORCH_ALLOC_CONF"
"""Variable with the settings of torch's allocator, read when the process first uses its GPU."""


def _use_one_thread() -> None:
    """Limit torch to one thread: on shared cores, spinning threads slow all processes down."""
    torch.set_num_threads(1)


def rank_threads(num_ranks: int, *, has_gpu: bool, num_cores: int) -> int:
    """Return the threads of a rank (count).

    Beside a GPU they update offloaded weights and add their gradients, and nothing else computes
    there; on a machine of CPUs all processes share the cores, and a rank has one.
    """
    return max(1, min(MAX_RANK_THREADS, num_cores // num_ranks)) if has_gpu else 1


def allocator_settings(transport: str) -> dict[str, str]:
    """Return the variables for the GPU allocator of a rank.

    Passes of ever new lengths leave gaps between its blocks; with segments that can grow it closes
    them. Such segments have no IPC handle that an engine could open.
    """
    return {} if transport == "ipc" else {ALLOCATOR: "expandable_segments:True"}


def _has_probe(factory: WorkerFactory, nonce: str) -> bool:
    try:
        return (factory.attempt_dir / DISK_PROBE).read_text() == nonce
    except OSError:
        return False


class EngineActor:
    """One engine. After a restart it loads the weights of the last sync before it samples.

    Calls are repeated by Ray when the process dies, so each must be safe to run twice.
    """

    def __init__(self, factory: WorkerFactory) -> None:
        _use_one_thread()
        self._factory = factory
        self._incarnation = uuid.uuid4().hex
        self._chosen: ChosenEngine | None = None
        self._digests: WeightDigests | None = None
        self._starting = asyncio.Lock()
        self._ready_since = math.inf

    async def shares_disk(self, nonce: str) -> bool:
        """Return True when this machine reads the trainer's probe file: they share a disk."""
        return await asyncio.to_thread(_has_probe, self._factory, nonce)

    async def start(self) -> EngineFacts:
        """Start the engine, if it is not running, and return its name.

        Raises:
            SpecError, EngineError: as `WorkerFactory.make_engine`.
        """
        chosen = await self._started()
        return EngineFacts(name=chosen.name, fallback=chosen.fallback)

    async def sample(
        self, prompt_ids: Sequence[int], params: SamplingParams, session: str, prefix_key: str
    ) -> Reply[tuple[Sample, EngineStats]]:
        """See `Engine.sample`; when the engine's own processes died, this one exits too."""
        engine = await self._engine()
        with _exit_if_dead(engine):
            sample = await engine.sample(prompt_ids, params, session=session, prefix_key=prefix_key)
        return Reply((sample, engine.stats()), self._incarnation, self._up_s())

    async def admit(self, claim: CacheClaim) -> Reply[int]:
        """See `AdmitsRollouts.admit`."""
        engine = await self._engine()
        granted = await engine.admit(claim) if isinstance(engine, AdmitsRollouts) else UNLIMITED
        return Reply(granted, self._incarnation)

    @ray.method(concurrency_group=HEALTH_GROUP)
    async def health_check(self) -> float | None:
        """Return the seconds for which the engine has been ready; None while it loads the model.

        Answered in its own concurrency group, also while the engine computes or loads.
        """
        up_s = self._up_s()
        return up_s if up_s >= 0.0 else None

    async def stats(self) -> Reply[EngineStats]:
        """See `Engine.stats`."""
        return Reply((await self._engine()).stats(), self._incarnation)

    async def release(self, session: str) -> None:
        """See `Engine.release`."""
        if self._chosen is not None:
            self._chosen.engine.release(session)

    async def logprobs(self, token_ids: Sequence[int]) -> Reply[tuple[torch.Tensor, EngineStats]]:
        """See `Engine.logprobs`."""
        engine = await self._engine()
        with _exit_if_dead(engine):
            logprobs = await engine.logprobs(token_ids)
        return Reply((logprobs, engine.stats()), self._incarnation, self._up_s())

    async def load_weights_file(self, path: Path, version: int) -> Reply[WeightDigests]:
        """Load the weights in `path` and return their digests; see `LoadsFile`."""
        engine = await self._engine()
        # A restarted process loads the newest file by itself: Ray's repeated call finds it loaded.
        if self._digests is None or self._digests.version != version or version == 0:
            with _exit_if_dead(engine):
                self._digests = await _file_loader(engine).load_weights_file(path, version)
        return Reply(self._digests, self._incarnation)

    async def init_group(self, address: str, first: int, size: int) -> None:
        """See `LoadsChunks.init_group`."""
        await _chunk_loader(await self._engine()).init_group(address, first, size)

    async def start_update(self) -> None:
        """See `LoadsChunks.start_update`."""
        await _chunk_loader(await self._engine()).start_update()

    async def load_chunk(self, chunk: WeightChunk, ipc_handle: bytes | None) -> None:
        """See `LoadsChunks.load_chunk`."""
        await _chunk_loader(await self._engine()).load_chunk(chunk, ipc_handle)

    async def finish_update(self, version: int) -> Reply[WeightDigests]:
        """See `LoadsChunks.finish_update`."""
        digests = await _chunk_loader(await self._engine()).finish_update(version)
        return Reply(digests, self._incarnation)

    async def sleep(self, level: int) -> None:
        """See `Sleeps.sleep`."""
        await _sleeper(await self._engine()).sleep(level)

    async def wake_weights(self) -> None:
        """See `Sleeps.wake_weights`."""
        await _sleeper(await self._engine()).wake_weights()

    async def wake_cache(self) -> None:
        """See `Sleeps.wake_cache`."""
        await _sleeper(await self._engine()).wake_cache()

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
                chosen = self._factory.make_engine()
                weights = newest_weights(self._factory.weights_dir)
                if weights is not None:
                    loader = _file_loader(chosen.engine)
                    self._digests = await loader.load_weights_file(weights.path, weights.version)
                self._chosen = chosen
                self._ready_since = time.monotonic()
            return self._chosen


@contextmanager
def _exit_if_dead(engine: Engine) -> Iterator[None]:
    """Exit this process if the engine's own ones died: Ray restarts it and repeats the call."""
    try:
        yield
    except EngineError:
        if getattr(engine, "is_dead", False):
            os._exit(1)
        raise


def _file_loader(engine: Engine) -> LoadsFile:
    if not isinstance(engine, LoadsFile):
        raise TypeError(f"{type(engine).__name__} does not load weight files")
    return engine


def _chunk_loader(engine: Engine) -> LoadsChunks:
    if not isinstance(engine, LoadsChunks):
        raise TypeError(f"{type(engine).__name__} does not load weight chunks")
    return engine


def _sleeper(engine: Engine) -> Sleeps:
    if not isinstance(engine, Sleeps):
        raise TypeError(f"{type(engine).__name__} does not sleep")
    return engine


class LearnerActor:
    """One rank of the learner; a save may run beside another call (two at a time).

    Never restarted: its optimizer state would be lost, so a death ends the attempt.
    """

    def __init__(self, factory: WorkerFactory, rank: int, size: int) -> None:
        has_gpu = torch.cuda.is_available()
        cores = os.cpu_count() or 1
        torch.set_num_threads(rank_threads(size, has_gpu=has_gpu, num_cores=cores))
        if has_gpu:
            for name, value in allocator_settings(factory.spec.engine.weight_transport).items():
                os.environ.setdefault(name, value)
        self._factory = factory
        self._rank_number, self._num_ranks = rank, size
        self._rank: LearnerRank | None = None
        self._finish: Callable[[], None] | None = None
        self._saved_in = Path()

    def shares_disk(self, nonce: str) -> bool:
        """See `EngineActor.shares_disk`."""
        return _has_probe(self._factory, nonce)

    def address(self) -> str:
        """Return a free `HOST:PORT` of this rank's machine, as the cluster knows it."""
        return free_address(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]

    def start(self, address: str) -> int:
        """Load the model, join the other ranks, and return the number of parameters."""
        with gc_paused_import():
            from trainer.learners.model.sharding import RankGroup  # noqa: PLC0415 - see hillclimb.process.lazy_imports
        world = RankGroup(
            rank=self._rank_number,
            size=self._num_ranks,
            init_method=f"tcp://{address}",
            device=_device(),
        )
        self._rank = self._factory.make_rank(world)
        return self._rank.num_parameters

    def step(self, batch: Batch) -> tuple[dict[str, float], int]:
        """Return the metrics and the new version; see `LearnerRank.step`."""
        metrics = self.rank.step(batch)
        return metrics, self.rank.version

    def take_token_values(self) -> tuple[SequenceValues, ...]:
        """Return those of this rank's sequences; see `LearnerRank.take_token_values`."""
        return self.rank.take_token_values()

    def logprobs(self, token_ids: Sequence[int]) -> torch.Tensor:
        """See `LearnerRank.logprobs`."""
        return self.rank.logprobs(token_ids)

    def write_weights(self, path: Path) -> WeightDigests:
        """See `LearnerRank.write_weights`; a full disk is reported as `StorageFull`."""
        with raise_storage_full(path.parent):
            return self.rank.write_weights(path)

    def write_adapter(self, directory: Path) -> WeightDigests:
        """See `LearnerRank.write_adapter`."""
        with raise_storage_full(directory.parent):
            return self.rank.write_adapter(directory)

    def chunks(self) -> WeightChunks:
        """See `Sender.chunks`."""
        return self.rank.sender.chunks(self.rank.version)

    def init_group(self, address: str, size: int) -> None:
        """See `Sender.init_group`."""
        self.rank.sender.init_group(address, size)

    def send(self, chunk: WeightChunk) -> None:
        """See `Sender.send`."""
        self.rank.sender.send(chunk)

    def export_ipc_handles(self, chunk: WeightChunk) -> bytes:
        """See `Sender.export_ipc_handles`."""
        return self.rank.sender.export_ipc_handles(chunk)

    def release_ipc_handles(self) -> None:
        """See `Sender.release_ipc_handles`."""
        self.rank.sender.release_ipc_handles()

    def digests(self) -> WeightDigests:
        """See `Sender.digests`."""
        return self.rank.sender.digests()

    def park(self) -> None:
        """See `LearnerRank.park`."""
        self.rank.park()

    def unpark(self) -> None:
        """See `LearnerRank.unpark`."""
        self.rank.unpark()

    def begin_save(self, directory: Path) -> None:
        """Copy the state to save; `finish_save` writes it."""
        self._saved_in = directory
        with raise_storage_full(directory):
            self._finish = self.rank.begin_save(directory)

    def finish_save(self) -> None:
        """Write the copy of `begin_save`."""
        finish, self._finish = self._finish, None
        if finish is not None:
            with raise_storage_full(self._saved_in):
                finish()

    def load(self, directory: Path) -> int:
        """Resume from a checkpoint and return its version."""
        self.rank.load(directory)
        return self.rank.version

    @property
    def rank(self) -> LearnerRank:
        """The rank that does the work."""
        if self._rank is None:
            raise RuntimeError("the rank was not started")
        return self._rank


def _device() -> str:
    return "cuda:0" if torch.cuda.is_available() else "cpu"


class RolloutActor:
    """A rollout worker that samples from engines in other processes."""

    def __init__(self, factory: WorkerFactory, engine: Engine, number: int) -> None:
        _use_one_thread()
        self._incarnation = uuid.uuid4().hex
        self._rollout_worker: RolloutWorker = factory.make_rollout_worker(engine, worker=number)

    async def ready(self) -> None:
        """Return once tokenizer and environments are loaded."""

    async def run_rollout(
        self, task: Task, sample_index: int, request: RolloutRequest
    ) -> Reply[Rollout]:
        """See `RolloutRunner.run_rollout`."""
        rollout = await self._rollout_worker.run_rollout(task, sample_index, request)
        return Reply(rollout, self._incarnation)

    async def close(self) -> None:
        """See `RolloutWorker.close`."""
        await self._rollout_worker.close()
