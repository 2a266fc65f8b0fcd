"""Episodes on a platform in a process of their own, which kills itself after a while."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import RolloutError
from hillclimb.environment.task import Task
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet.scene import LEASE, play
from tests.trainer.envs.fleet_server import API_KEY
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.api import FleetAccount

WORKERS = 6


def run(arguments: Sequence[str]) -> int:
    """Play episodes under a tag until the process is killed: URL, tag, seconds."""
    url, tag, seconds = arguments
    timer = threading.Timer(float(seconds), lambda: os.kill(os.getpid(), signal.SIGKILL))
    timer.daemon = True
    timer.start()
    asyncio.run(_play(url, tag))
    return 0


async def _play(url: str, tag: str) -> None:
    provider = FleetProvider(
        FleetAccount(base_url=url, key=API_KEY),
        ("booking",),
        replace(LEASE, run_tag=tag),
        max_instances=WORKERS,
        partial_reward=False,
    )
    tasks = minifleet_tasks(["booking"], "train", WORKERS, seed=0)
    await asyncio.gather(*(_repeat(provider, task) for task in tasks))


async def _repeat(provider: FleetProvider, task: Task) -> None:
    while True:
        with suppress(RolloutError, TimeoutError):
            async with provider.slot(task):
                env = provider.make(task)
                try:
                    with within(2.0):
                        await play(env, task)
                        await env.score()
                finally:
                    await env.close()
