"""`FleetTaskEnv` against minifleet's server: awaited, and with the blocking methods."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from hillclimb.minifleet.export import task_row, tasks_document
from tests.trainer.envs.episodes import _expert_calls
from tests.trainer.envs.fleet.scene import TASK
from tests.trainer.envs.fleet_server import (
    API_KEY,
    HEADERS,
    FleetServer,
    fleet_server,
    fleet_server_thread,
)
from trainer.envs.fleet import task_env
from trainer.envs.fleet.task_env import FleetTaskEnv, make_fleet_task_env

ROOT = Path(__file__).parents[4]


def make_env(server: FleetServer, **more: Any) -> FleetTaskEnv:
    prompt = {"prompt": more.pop("prompt")} if "prompt" in more else {}
    return FleetTaskEnv(task_row(TASK) | prompt, API_KEY, base_url=server.url, **more)


async def test_an_episode_has_the_observations_and_infos_of_openenv() -> None:
    async with fleet_server() as server:
        env = make_env(server)
        seen = await env.reset_async()
        assert set(seen) == {"prompt", "observation", "step", "task_key", "modality", "tools"}
        assert (seen["prompt"], seen["step"], seen["task_key"]) == (TASK.prompt, 0, TASK.key)
        assert seen["tools"][0]["type"] == "function"
        calls = await _expert_calls(TASK)
        for number, call in enumerate(calls, start=1):
            action = {"tool": call.name, "params": dict(call.arguments)}
            seen, reward, done, info = await env.step_async(action)
            assert (reward, done, info["step"], info["done_reason"]) == (0.0, False, number, None)
            assert seen["observation"] == info["tool_result"]
        _, reward, done, info = await env.step_async({"done": True})
        assert (reward, done, info["done_reason"]) == (1.0, True, "agent_done")
        assert info["reward_computed"]
        with pytest.raises(RuntimeError, match="call reset first"):
            await env.step_async({})
        await env.close_async()
        assert (await server.stats())["instances"]["running"] == 0


async def test_a_wrong_call_is_an_error_and_the_last_step_is_graded() -> None:
    async with fleet_server() as server:
        env = make_env(server, max_steps=1)
        await env.reset_async()
        _, reward, done, info = await env.step_async({"tool": "nonsense", "params": {}})
        assert "no tool" in info["tool_error"]
        assert (reward, done, info["done_reason"]) == (0.0, True, "max_steps")
        await env.close_async()


async def test_a_submitted_answer_ends_the_episode() -> None:
    async with fleet_server() as server:
        env = make_env(server, prompt="What is it? Use submit_final_answer.")
        seen = await env.reset_async()
        assert seen["tools"][-1]["function"]["name"] == "submit_final_answer"
        action = {"tool": "submit_final_answer", "params": {"answer": "42"}}
        _, reward, done, info = await env.step_async(action)
        assert (reward, done, info["submitted_answer"]) == (0.0, True, "42")
        await env.close_async()


async def test_a_reward_that_is_not_known_is_none_and_an_episode_left_is_graded() -> None:
    async with fleet_server() as server:
        env = make_env(server)
        await env.reset_async()
        await server.faults({"on": ["verify"], "no_result_rate": 1.0})
        _, reward, done, info = await env.step_async({"done": True})
        assert (reward, done, info["reward_computed"]) == (None, True, False)
        await server.faults()
        await env.reset_async()
        await env.close_async()
        assert env.final_reward == 0.0
        assert (await server.stats())["instances"] == {
            "created": 2,
            "running": 0,
            "ended": {"deleted": 2},
        }


def test_a_key_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLEET_API_KEY", raising=False)
    with pytest.raises(ValueError, match="set FLEET_API_KEY"):
        FleetTaskEnv(task_row(TASK))


@pytest.fixture(scope="module")
def base_url() -> Iterator[str]:
    with fleet_server_thread() as url:
        yield url


def num_running(base_url: str) -> int:
    stats = httpx.get(f"{base_url}/admin/stats", headers=HEADERS).json()
    return int(stats["instances"]["running"])


def actions() -> list[dict[str, Any]]:
    """The scripted expert's calls as actions."""
    calls = asyncio.run(_expert_calls(TASK))
    return [{"tool": call.name, "params": dict(call.arguments)} for call in calls]


def test_the_blocking_methods_play_an_episode_without_an_event_loop(base_url: str) -> None:
    env = make_fleet_task_env(task_row(TASK), api_key=API_KEY, base_url=base_url)
    observation = env.reset()
    assert (observation["prompt"], observation["step"]) == (TASK.prompt, 0)
    for action in actions():
        observation, reward, done, info = env.step(action)
        assert (reward, done) == (0.0, False)
        assert observation["observation"] == info["tool_result"]
    _, reward, done, info = env.step({"done": True})
    assert (reward, done, info["done_reason"]) == (1.0, True, "agent_done")
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step({})
    assert env.reset()["step"] == 0
    assert num_running(base_url) == 1
    env.close()
    assert env.final_reward == 0.0
    assert num_running(base_url) == 0
    env.close()
    with pytest.raises(RuntimeError, match="closed"):
        env.reset()


def test_an_instance_lives_while_the_caller_computes_between_two_steps(
    base_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_env, "HEARTBEAT_S", 1)
    env = make_fleet_task_env(task_row(TASK), api_key=API_KEY, base_url=base_url)
    env.reset()
    time.sleep(1.6)  # without heartbeats an instance ends after 1 s
    _, _, _, info = env.step(actions()[0])
    assert "tool_error" not in info
    env.close()


async def test_a_blocking_method_in_an_event_loop_names_the_one_to_await(base_url: str) -> None:
    env = make_fleet_task_env(task_row(TASK), api_key=API_KEY, base_url=base_url)
    with pytest.raises(RuntimeError, match="await reset_async instead of reset"):
        env.reset()
    with pytest.raises(RuntimeError, match="await step_async instead of step"):
        env.step({})
    await env.reset_async()
    with pytest.raises(RuntimeError, match="await close_async instead of close"):
        env.close()
    await env.close_async()


def test_an_episode_stays_in_the_event_loop_that_started_it(base_url: str) -> None:
    env = make_fleet_task_env(task_row(TASK), api_key=API_KEY, base_url=base_url)
    env.reset()
    with pytest.raises(RuntimeError, match="belongs to another event loop"):
        asyncio.run(env.step_async({"done": True}))
    env.close()


def test_the_example_plays_the_actions_of_its_input(base_url: str, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    tasks.write_text(json.dumps(tasks_document([TASK])))
    finished = subprocess.run(
        [sys.executable, str(ROOT / "examples/fleet_task_env.py"), str(tasks)],
        input="".join(json.dumps(action) + "\n" for action in actions()),
        env={**os.environ, "FLEET_BASE_URL": base_url, "FLEET_API_KEY": API_KEY},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith(TASK.prompt)
    assert finished.stdout.endswith("reward: 1.0\n")
    assert num_running(base_url) == 0
