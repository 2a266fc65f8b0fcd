"""Ray actor with one engine.

Its replies name the incarnation of the process that they come from: Ray restarts a process that
died, repeats its unanswered calls, and notifies nobody.

Whoever looks the actor up by name imports this module, rollout workers too, which do without
torch: the engine's own imports are made when it starts.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ray

from hillclimb.process.lazy_imports import gc_paused_import
from trainer.engines.admission import UNLIMITED, AdmitsRollouts, CacheClaim
from trainer.engines.base import Engine, EngineStats, Sleeps
from trainer.errors import EngineError
from trainer.types import Sample, SamplingParams
from trainer.workers.factory import WorkerFactory
from trainer.workers.ray.replies import Reply
from trainer.workers.ray.shared_disk import has_probe

if TYPE_CHECKING:
    import torch

    from trainer.engines.choose import ChosenEngine
    from trainer.weights.chunks import LoadsChunks, WeightChunk
    from trainer.weights.digests import WeightDigests
    from trainer.weights.file_system import LoadsFile

HEALTH_GROUP = "health"
"""Ray concurrency group of the health check: it is answered while other calls occupy the actor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Name of the engine that a worker made, and the reason for a fallback."""

    name: str
    fallback: str | None


class EngineActor:
    """One engine. After a restart it loads the weights of the last sync before it samples.

    Calls are repeated by Ray when the process dies, so each must be safe to run twice.
    """

    def __init__(self, factory: WorkerFactory) -> None:
        self._factory = factory
        self._incarnation = uuid.uuid4().hex
        self._chosen: ChosenEngine | None = None
        self._digests: WeightDigests | None = None
        self._starting = asyncio.Lock()
        self._ready_since = math.inf

    async def shares_disk(self, nonce: str) -> bool:
        """Return True when this machine reads the trainer's probe file: they share a disk."""
        return await asyncio.to_thread(has_probe, self._factory.attempt_dir, nonce)

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

    async def score(self, token_ids: Sequence[int]) -> Reply[EngineStats]:
        """See `Restartable.score`."""
        engine = await self._engine()
        with _exit_if_dead(engine):
            await engine.logprobs(token_ids)
        return Reply(engine.stats(), self._incarnation, self._up_s())

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
                with gc_paused_import():
                    import torch  # noqa: PLC0415 - see hillclimb.process.lazy_imports

                    from trainer.weights.file_system import newest_weights  # noqa: PLC0415
                # On shared cores, spinning threads slow all processes down.
                torch.set_num_threads(1)
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
    from trainer.weights.file_system import LoadsFile  # noqa: PLC0415 - it is there by now

    if not isinstance(engine, LoadsFile):
        raise TypeError(f"{type(engine).__name__} does not load weight files")
    return engine


def _chunk_loader(engine: Engine) -> LoadsChunks:
    from trainer.weights.chunks import LoadsChunks  # noqa: PLC0415 - it is there by now

    if not isinstance(engine, LoadsChunks):
        raise TypeError(f"{type(engine).__name__} does not load weight chunks")
    return engine


def _sleeper(engine: Engine) -> Sleeps:
    if not isinstance(engine, Sleeps):
        raise TypeError(f"{type(engine).__name__} does not sleep")
    return engine
