"""Plays recorded episodes with OpenEnv's own `FleetTaskEnv`; prints one JSON list of outcomes.

    FLEET_BASE_URL=... FLEET_API_KEY=... PYTHONPATH=CHECKOUT/src python fleet_task_env.py EPISODES

Runs in an environment of its own and imports nothing of Hillclimb.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from envs.fleet_env.task_env import FleetTaskEnv
from fleet import AsyncFleet


async def play(fleet: AsyncFleet, episode: dict[str, Any]) -> dict[str, Any]:
    """Play one episode; the last step says that it is the last."""
    (task,) = await fleet.load_tasks(keys=[episode["task_key"]])
    env = FleetTaskEnv(
        {
            "task_key": task.key,
            "prompt": task.prompt,
            "env_key": task.env_id,
            "env_version": task.version,
            "data_key": task.data_id,
            "data_version": task.data_version,
            "env_variables": task.env_variables,
            "verifier_code": task.verifier_func,
            "task_modality": "tool_use",
        },
        partial_reward=True,
    )
    begun = await env.reset_async()
    texts, reward = [], None
    for number, call in enumerate(episode["calls"], start=1):
        is_last = number == len(episode["calls"])
        action = {"tool": call["name"], "params": call["arguments"], "done": is_last}
        _, reward, _, info = await env.step_async(action)
        texts.append(info.get("tool_result"))
    await env.close_async()
    return {"tools": len(begun["tools"]), "texts": texts, "reward": reward}


async def play_all(episodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Play all at once: each waits eight seconds before it lists its tools."""
    fleet = AsyncFleet()
    return list(await asyncio.gather(*(play(fleet, episode) for episode in episodes)))


if __name__ == "__main__":
    outcomes = asyncio.run(play_all(json.loads(Path(sys.argv[1]).read_text())))
    sys.stdout.write(json.dumps(outcomes) + "\n")
