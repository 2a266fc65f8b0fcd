"""The same wire in OpenEnv's shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.envs.episodes import _expert_calls
from tests.trainer.envs.fleet.scene import TASK
from tests.trainer.envs.fleet_server import API_KEY, FleetServer, fleet_server
from trainer.envs.fleet.task_env import FleetTaskEnv
from trainer.envs.minifleet.export import task_row


def made(server: FleetServer, **more: Any) -> FleetTaskEnv:
    prompt = {"prompt": more.pop("prompt")} if "prompt" in more else {}
    return FleetTaskEnv(task_row(TASK) | prompt, API_KEY, base_url=server.url, **more)


async def test_an_episode_has_the_observations_and_infos_of_openenv() -> None:
    async with fleet_server() as server:
        env = made(server)
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
        with pytest.raises(RuntimeError, match="call reset_async first"):
            await env.step_async({})
        await env.close_async()
        assert (await server.stats())["instances"]["running"] == 0


async def test_a_wrong_call_is_an_error_and_the_last_step_is_graded() -> None:
    async with fleet_server() as server:
        env = made(server, max_steps=1)
        await env.reset_async()
        _, reward, done, info = await env.step_async({"tool": "nonsense", "params": {}})
        assert "no tool" in info["tool_error"]
        assert (reward, done, info["done_reason"]) == (0.0, True, "max_steps")
        await env.close_async()


async def test_a_submitted_answer_ends_the_episode() -> None:
    async with fleet_server() as server:
        env = made(server, prompt="What is it? Use submit_final_answer.")
        seen = await env.reset_async()
        assert seen["tools"][-1]["function"]["name"] == "submit_final_answer"
        action = {"tool": "submit_final_answer", "params": {"answer": "42"}}
        _, reward, done, info = await env.step_async(action)
        assert (reward, done, info["submitted_answer"]) == (0.0, True, "42")
        await env.close_async()


async def test_a_reward_that_is_not_known_is_none_and_an_episode_left_is_graded() -> None:
    async with fleet_server() as server:
        env = made(server)
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
