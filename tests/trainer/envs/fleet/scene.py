"""A provider on a real server: what the tests of the fleet provider share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import API_KEY, SETTINGS, FleetServer, fleet_server
from trainer.envs.fleet.env import FleetEnv
from trainer.envs.fleet.instances.instances import LeaseOptions
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.api import FleetAccount
from trainer.envs.fleet.wire.sizes import DEFAULT, Sizes

TASK = minifleet_tasks(["booking"], "train", 1, seed=0)[0]
LEASE = LeaseOptions(
    run_tag="hillclimb.run_x.1", ttl_s=600, heartbeat_interval_s=60, operation_s=20.0
)


@asynccontextmanager
async def on_server(
    *,
    env_keys: Sequence[str] = ("booking", "github", "outlook"),
    max_instances: int = 8,
    lease: LeaseOptions = LEASE,
    partial_reward: bool = False,
    sizes: Sizes = DEFAULT,
    **settings: Any,
) -> AsyncIterator[tuple[FleetServer, FleetProvider]]:
    """A server of minifleet and a provider on it; both are closed at the end."""
    async with fleet_server(replace(SETTINGS, **settings)) as server:
        provider = FleetProvider(
            FleetAccount(base_url=server.url, key=API_KEY),
            env_keys,
            lease,
            max_instances=max_instances,
            partial_reward=partial_reward,
            sizes=sizes,
        )
        try:
            yield server, provider
        finally:
            await provider.close()


async def play(env: FleetEnv, task: Task = TASK) -> tuple[tuple[ToolSpec, ...], list[ToolResult]]:
    """Reset and let the scripted expert solve the task."""
    return await env.reset(), await go_on(env, task)


async def go_on(env: FleetEnv, task: Task = TASK) -> list[ToolResult]:
    """Let the scripted expert solve the task in an episode that has begun."""
    run = expert(task)
    results: list[ToolResult] = []
    call = next(run)
    while True:
        results.append(await env.call(call.name, call.arguments))
        try:
            call = run.send(results[-1])
        except StopIteration:
            return results


def with_payload(task: Task = TASK, **payload: JsonValue) -> Task:
    """A task as a dataset brings it."""
    base: Mapping[str, JsonValue] = {
        "env_version": "v1",
        "data_key": task.key,
        "data_version": "v1",
        "task_modality": "tool_use",
        "metadata": {},
    }
    return replace(task, payload={**base, **payload})
