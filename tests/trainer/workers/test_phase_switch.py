"""Engines and learner on one GPU whose memory is counted: a wrong order runs out of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from trainer.engines.base import Sleeps
from trainer.errors import EngineError, LearnerError, WeightSyncMismatch
from trainer.workers.phase_switch import PhaseSwitch, SwitchedSync

ROOM = 10
WEIGHTS, CACHE = 3, 5
MASTER, MOMENTS, ACTIVATIONS, CHUNK = 2, 5, 3, 1


@dataclass
class Gpu:
    """What lies in its memory, by owner."""

    held: dict[str, int] = field(default_factory=dict)

    def take(self, name: str, size: int) -> None:
        self.held[name] = size
        if sum(self.held.values()) > ROOM:
            raise EngineError(f"out of memory: {self.held}")

    def free(self, *names: str) -> None:
        for name in names:
            self.held.pop(name, None)


@dataclass
class GpuEngine:
    """Starts with everything in memory; samples only with weights, of a version, and cache."""

    gpu: Gpu
    level: int | None = None
    version: int = 0
    hangs: bool = False
    fails: bool = False
    is_awake: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self) -> None:
        self.gpu.take("weights", WEIGHTS)
        self.gpu.take("cache", CACHE)
        self.is_awake.set()

    async def sleep(self, level: int) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise EngineError("vLLM's process died")
        self.level = level
        self.is_awake.clear()
        self.gpu.free("weights", "cache")

    async def wake_weights(self) -> None:
        self.gpu.take("weights", WEIGHTS)

    async def wake_cache(self) -> None:
        self.gpu.take("cache", CACHE)
        self.is_awake.set()

    async def sample(self) -> int:
        await self.is_awake.wait()
        assert {"weights", "cache"} <= self.gpu.held.keys()
        return self.version


@dataclass
class GpuLearner:
    gpu: Gpu
    version: int = 0
    fails: bool = False

    def load(self) -> None:
        self.gpu.take("master", MASTER)
        self.gpu.take("moments", MOMENTS)

    async def park(self) -> None:
        self.gpu.free("moments", "chunk")

    async def unpark(self) -> None:
        self.gpu.take("moments", MOMENTS)

    async def step(self) -> None:
        assert "moments" in self.gpu.held
        self.gpu.take("activations", ACTIVATIONS)
        self.gpu.free("activations")
        if self.fails:
            raise LearnerError("a rank of the learner died")
        self.version += 1


@dataclass
class GpuSync:
    """Takes a chunk's memory on the learner's side; its allocator keeps that cached."""

    gpu: Gpu
    learner: GpuLearner
    engine: GpuEngine
    fails: bool = False

    async def sync(self) -> None:
        assert "weights" in self.gpu.held
        self.gpu.take("chunk", CHUNK)
        if self.fails:
            raise WeightSyncMismatch("a tensor was not sent")
        self.engine.version = self.learner.version


@dataclass
class Shared:
    gpu: Gpu = field(default_factory=Gpu)

    def __post_init__(self) -> None:
        self.engine, self.learner = GpuEngine(self.gpu), GpuLearner(self.gpu)
        self.inner = GpuSync(self.gpu, self.learner, self.engine)

    async def started(self, *, level: int = 1, limit_s: float = 5.0) -> None:
        """As `trainer.workers.ray.workers` starts both."""
        self.engine.start()
        await self.engine.sleep(level)
        self.learner.load()
        self.switch = PhaseSwitch(self.learner, [self.engine], level=level, limit_s=limit_s)
        self.sync = SwitchedSync(self.switch, self.inner)

    async def step(self) -> None:
        await self.switch.to_learner()
        await self.learner.step()
        await self.sync.sync()


@pytest.mark.parametrize("level", [1, 2])
async def test_three_steps_fit_a_gpu_that_cannot_hold_both(level: int) -> None:
    assert WEIGHTS + CACHE + MASTER + MOMENTS > ROOM
    shared = Shared()
    assert isinstance(shared.engine, Sleeps)
    await shared.started(level=level)
    await shared.sync.sync()
    for version in (1, 2, 3):
        assert await shared.engine.sample() == version - 1
        await shared.step()
    assert await shared.engine.sample() == 3
    assert shared.engine.level == level
    assert shared.gpu.held == {"weights": WEIGHTS, "cache": CACHE, "master": MASTER}


async def test_a_request_that_comes_while_the_engine_sleeps_waits_for_the_new_weights() -> None:
    shared = Shared()
    await shared.started()
    await shared.sync.sync()
    await shared.switch.to_learner()
    request = asyncio.create_task(shared.engine.sample())
    await shared.learner.step()
    assert not request.done()
    await shared.sync.sync()
    assert await request == 1


async def test_a_sync_without_a_step_before_it_has_room_for_the_weights_on_their_way() -> None:
    shared = Shared()
    await shared.started()
    await shared.sync.sync()
    shared.gpu.take("other", ROOM - sum(shared.gpu.held.values()))
    with pytest.raises(EngineError, match="out of memory"):
        shared.gpu.take("chunk", CHUNK)
    shared.gpu.free("chunk")
    await shared.sync.sync()


async def test_the_learner_may_be_asked_again_without_a_change() -> None:
    shared = Shared()
    await shared.started()
    await shared.switch.to_learner()
    await shared.learner.step()
    await shared.switch.to_learner()
    await shared.learner.step()
    await shared.sync.sync()
    assert await shared.engine.sample() == 2


async def test_an_engine_that_does_not_fall_asleep_ends_the_attempt() -> None:
    shared = Shared()
    await shared.started(limit_s=0.02)
    await shared.sync.sync()
    shared.engine.hangs = True
    with pytest.raises(EngineError, match=r"did not fall asleep in 0\.02 s"):
        await shared.switch.to_learner()
    assert "moments" not in shared.gpu.held, "the learner took memory that the engine has"


async def test_failures_of_either_side_are_raised_as_they_are() -> None:
    shared = Shared()
    await shared.started()
    await shared.sync.sync()
    shared.engine.fails = True
    with pytest.raises(EngineError, match="process died"):
        await shared.step()
    shared.engine.fails, shared.learner.fails = False, True
    with pytest.raises(LearnerError, match="died"):
        await shared.step()
    shared.learner.fails, shared.inner.fails = False, True
    with pytest.raises(WeightSyncMismatch):
        await shared.step()
    assert not shared.engine.is_awake.is_set(), "it would sample from weights that are not there"
