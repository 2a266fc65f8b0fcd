"""Plays recorded episodes with Fleet's own client and mcp 1.24, neither of them changed.

    FLEET_BASE_URL=... FLEET_API_KEY=... .venv-peers/bin/python tests/peers/replay.py IN OUT

Runs in an environment of its own and imports nothing of Hillclimb. IN holds episodes
(`tests/trainer/envs/episodes.py`); OUT gets them with the texts, error marks and rewards met here.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import httpx
from fleet import AsyncFleet
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

AT_ONCE = 8


async def load(fleet: AsyncFleet, episodes: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the tasks by key, as the server lists them."""
    keys: dict[str, list[str]] = defaultdict(list)
    for episode in episodes:
        keys[episode["env_key"]].append(episode["task_key"])
    found = [await fleet.load_tasks(env_key=env, keys=some) for env, some in keys.items()]
    return {task.key: task for tasks in found for task in tasks}


async def play(
    fleet: AsyncFleet, http: httpx.AsyncClient, task: Any, episode: dict[str, Any]
) -> dict[str, Any]:
    """Play one episode: make, reset, list, call, verify, close."""
    env = await fleet.make(
        task.env_key, data_key=task.data_key, env_variables=task.env_variables, run_id="replay"
    )
    try:
        assert (await env.reset()).success
        results = await call_all(http, f"{env.urls.root}mcp", episode["calls"])
        verdict = await task.verify_detailed_async(env)
        assert verdict.success, verdict.error
    finally:
        await env.close()
    return episode | {
        "texts": [result.content[0].text for result in results],
        "errors": [bool(result.isError) for result in results],
        "reward": float(verdict.result),
    }


async def call_all(http: httpx.AsyncClient, url: str, calls: list[dict[str, Any]]) -> list[Any]:
    """Make the calls in one MCP session."""
    async with (
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        tools = await session.list_tools()
        assert tools.tools
        return [await session.call_tool(call["name"], call["arguments"]) for call in calls]


async def play_all(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Play all episodes, a few at once, and check that no instance is left."""
    fleet = AsyncFleet()
    tasks = await load(fleet, episodes)
    slots = asyncio.Semaphore(AT_ONCE)

    bearer = {"Authorization": f"Bearer {os.environ['FLEET_API_KEY']}"}
    async with httpx.AsyncClient(headers=bearer, timeout=30.0) as http:

        async def bounded(episode: dict[str, Any]) -> dict[str, Any]:
            async with slots:
                return await play(fleet, http, tasks[episode["task_key"]], episode)

        played = await asyncio.gather(*(bounded(episode) for episode in episodes))
    assert (await fleet.account()).instance_count == 0
    return played


if __name__ == "__main__":
    outcomes = asyncio.run(play_all(json.loads(Path(sys.argv[1]).read_text())))
    Path(sys.argv[2]).write_text(json.dumps(outcomes))
