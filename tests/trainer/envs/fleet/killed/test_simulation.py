"""Killed at any moment, with a platform that answers late: nothing is left, and never too much.

66 trainers in virtual time, each with a seed of its own: workers create, hold and delete instances,
some give up waiting, and the process is killed at a random moment. Then its runner sweeps, at once
and again at `LATE_S`; half of the runs go on with a next attempt. In 66 real runs 4 and 6 instances
were left in two (`kill -9` of run and server while creations were under way).
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace

import pytest

from hillclimb.environment.deadline import within
from hillclimb.process.sweep import LATE_S
from hillclimb.protocol.rundir import run_tag
from tests.trainer.envs.fleet.killed.late_platform import LateClient, LatePlatform
from tests.trainer.envs.fleet.scene import LEASE
from trainer.envs.fleet.instances.instances import FleetInstances, delete_all
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.sweep import delete_earlier
from trainer.envs.fleet.wire.faults import WireFault
from trainer.envs.fleet.wire.retry import CallRetry, Meter

BOUND, WORKERS = 6, 9


class Attempt:
    """One attempt of a run: workers that use instances until somebody kills them."""

    def __init__(self, platform: LatePlatform, number: int, rng: random.Random) -> None:
        self.rng, self.client = rng, LateClient(platform)
        self.tag = run_tag("run_1", number)
        lease = replace(LEASE, run_tag=self.tag, operation_s=5.0, heartbeat_interval_s=60)
        self.limiter = Limiter(BOUND, rng=rng)
        self.instances = FleetInstances(self.client, lease)  # type: ignore[arg-type]
        self.tasks = [asyncio.create_task(self._work()) for _ in range(WORKERS)]

    def kill(self) -> None:
        """Let no further request leave, as after SIGKILL, and drop the tasks."""
        self.client.is_killed = True
        self.instances._is_closing = True
        for task in (*self.tasks, *self.instances._background, self.instances._heartbeat_task):
            if task is not None:
                task.cancel()

    async def _work(self) -> None:
        retry = CallRetry(operation_s=5.0, meter=Meter(), load=self.limiter, rng=self.rng)
        while True:
            with suppress(WireFault, TimeoutError):
                # Some rollouts end while their instance is being created.
                async with self.limiter.slot(), asyncio.timeout(self.rng.uniform(1.0, 60.0)):
                    with within(30.0):
                        made = await self.instances.make({}, retry, self.limiter)
                    try:
                        await asyncio.sleep(self.rng.uniform(0.0, 5.0))
                    finally:
                        await self.instances.delete(made.id)


async def sweep(platform: LatePlatform, attempt: Attempt) -> None:
    retry = CallRetry(operation_s=10.0, meter=Meter(), load=Limiter(1), rng=attempt.rng)
    with within(20.0):
        await delete_all(LateClient(platform), attempt.tag, retry)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(66))
async def test_nothing_is_left_after_the_next_sweep_and_the_bound_holds(seed: int) -> None:
    rng = random.Random(seed)
    platform = LatePlatform(rng=rng, latest_s=rng.uniform(0.1, 12.0), limit=1000)
    attempt = Attempt(platform, 1, rng)
    await asyncio.sleep(rng.uniform(0.0, 90.0))
    attempt.kill()
    assert platform.most <= BOUND
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    await sweep(platform, attempt)
    attempts, ends = [attempt], [asyncio.get_running_loop().time()]
    if seed % 2:
        later = LateClient(platform)
        await delete_earlier(later, "run_1", 2)  # type: ignore[arg-type]
        attempts.append(Attempt(platform, 2, rng))
        await asyncio.sleep(rng.uniform(0.0, 20.0))
        attempts[1].kill()
        ends.append(asyncio.get_running_loop().time())
        await sweep(platform, attempts[1])
    for each, ended_at in zip(attempts, ends, strict=True):
        await asyncio.sleep(max(0.0, ended_at + LATE_S[0] - asyncio.get_running_loop().time()))
        await sweep(platform, each)
    assert platform.alive == {}
    assert platform.num_created > 0 or platform.latest_s > 1.0
