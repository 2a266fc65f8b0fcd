"""OpenEnv's `FleetTaskEnv` over the same wire: one task, stepped by hand.

For scripts that are written against that shape. Training does not use it: there the episode loop
decides when an episode is over, and the clocks of the rollout bound every operation.

Differences from the original are on purpose: `close_async` deletes the instance, a reward that is
not known is None and never 0 or 1, and a reset that fails is an error, so it has no timeout of its
own (`reset_timeout_s`) after which the episode would begin all the same.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from trainer.contract.fleet import DEFAULT_BASE_URL
from trainer.envs.base import ToolResult, ToolSpec
from trainer.envs.fleet.api import Account
from trainer.envs.fleet.choice import API_KEY, BASE_URL
from trainer.envs.fleet.env import SUBMIT, FleetEnv
from trainer.envs.fleet.instances import Terms
from trainer.envs.fleet.provider import FleetProvider
from trainer.errors import EnvAtCapacity, RolloutError, VerifierUnavailable
from trainer.types import Task

TTL_S = 900
"""OpenEnv's own default for tasks without a screen."""
HEARTBEAT_S = 60
Observation = dict[str, Any]
Info = dict[str, Any]


class FleetTaskEnv:
    """One episode of one task.

    Args:
        task_config: `task_key` or `key`, `prompt`, `env_key`, and what else a dataset's row has.
        api_key: default `FLEET_API_KEY`; the platform is `base_url`, else `FLEET_BASE_URL`.
        ttl_seconds: life of the instance.
        max_steps: steps after which the episode is over.
        request_timeout_s: longest single request.
        partial_reward: give a failed task the share of its checks that passed.

    Example:
        env = FleetTaskEnv({"task_key": "t1", "prompt": "Book a room.", "env_key": "booking"})
        observation = await env.reset_async()
        observation, reward, done, info = await env.step_async({"tool": "search", "params": {}})
        await env.close_async()
    """

    def __init__(  # noqa: PLR0913 - the arguments are OpenEnv's
        self,
        task_config: Mapping[str, Any],
        api_key: str | None = None,
        ttl_seconds: int | None = None,
        max_steps: int = 50,
        request_timeout_s: float = 60.0,
        *,
        partial_reward: bool = False,
        base_url: str | None = None,
    ) -> None:
        key = api_key or os.environ.get(API_KEY)
        if not key:
            raise ValueError(f"FleetTaskEnv needs a key: give api_key or set {API_KEY}")
        self._task = _task(task_config)
        self._max_steps = max_steps
        self._provider = FleetProvider(
            Account(base_url=base_url or os.environ.get(BASE_URL) or DEFAULT_BASE_URL, key=key),
            (self._task.env_key,),
            Terms(
                run_tag=f"hillclimb.task-env.{uuid.uuid4().hex}",
                ttl_s=ttl_seconds or TTL_S,
                heartbeat_interval_s=HEARTBEAT_S,
                operation_s=request_timeout_s,
            ),
            max_instances=1,
            partial_reward=partial_reward,
        )
        self._env: FleetEnv | None = None
        self._tools: tuple[ToolSpec, ...] = ()
        self._step = 0
        self._is_over = True
        self.final_reward: float | None = None
        """What the verifier said at the end; None before it, and where it gave no grade."""

    async def reset_async(self, seed: int | None = None) -> Observation:
        """Begin the episode anew and return what the agent sees first; `seed` changes nothing.

        Raises:
            EnvUnavailable: the environment does not start.
        """
        await self._leave()
        while True:
            async with self._provider.slot(self._task):
                env = self._env = self._provider.make(self._task)
                try:
                    self._tools = await env.reset()
                    break
                except EnvAtCapacity:
                    continue
        self._step, self._is_over, self.final_reward = 0, False, None
        return self._observation({})

    async def step_async(
        self, action: Mapping[str, Any]
    ) -> tuple[Observation, float | None, bool, Info]:
        """Take one step: `{"tool", "params", "done"}`; return observation, reward, done, info.

        Raises:
            RuntimeError: the episode is over, or has not begun.
        """
        if self._env is None or self._is_over:
            raise RuntimeError("the episode is not running: call reset_async first")
        self._step += 1
        info: Info = {"step": self._step}
        result = await self._act(self._env, action, info)
        wants_out = bool(action.get("done")) or "submitted_answer" in info
        is_last = self._step >= self._max_steps
        self._is_over = wants_out or is_last
        info["done_reason"] = "agent_done" if wants_out else "max_steps" if is_last else None
        reward: float | None = 0.0
        if self._is_over:
            reward = self.final_reward = await self._grade(self._env)
            info["reward_computed"] = reward is not None
        return self._observation(result), reward, self._is_over, info

    async def close_async(self) -> None:
        """Grade an episode that was left in the middle, and delete the instance."""
        if self._env is not None and not self._is_over:
            self.final_reward = await self._grade(self._env)
        await self._leave()
        await self._provider.close()

    async def _act(self, env: FleetEnv, action: Mapping[str, Any], info: Info) -> Any:  # noqa: ANN401 - JSON
        tool, arguments = action.get("tool"), action.get("params") or {}
        if not tool:
            return {}
        try:
            found = await env.call(str(tool), arguments)
        except RolloutError as error:
            info["tool_error"] = str(error)
            return {"error": str(error)}
        if found.ends_episode and tool == SUBMIT:
            info["submitted_answer"] = arguments.get("answer")
        if found.is_error:
            info["tool_error"] = found.text
        info["tool_result"] = _content(found)
        return info["tool_result"]

    async def _grade(self, env: FleetEnv) -> float | None:
        try:
            return (await env.score()).score
        except VerifierUnavailable:
            return None

    def _observation(self, result: Any) -> Observation:  # noqa: ANN401 - JSON
        return {
            "prompt": self._task.prompt,
            "observation": result,
            "step": self._step,
            "task_key": self._task.key,
            "modality": "tool_use",
            "tools": [_function(tool) for tool in self._tools],
        }

    async def _leave(self) -> None:
        env, self._env, self._is_over = self._env, None, True
        if env is not None:
            await env.close()


def _task(config: Mapping[str, Any]) -> Task:
    variables = config.get("env_variables") or {}
    if isinstance(variables, str):
        variables = json.loads(variables)
    payload: dict[str, JsonValue] = {
        "env_version": config.get("env_version") or config.get("version"),
        "data_key": config.get("data_key") or config.get("data_id"),
        "data_version": config.get("data_version"),
        "verifier_code": config.get("verifier_code") or config.get("verifier_func"),
        "task_modality": config.get("task_modality") or "tool_use",
    }
    key, env_key = config.get("task_key") or config.get("key"), config.get("env_key")
    env_key = env_key or config.get("env_id")
    if not key or not env_key:
        raise ValueError("task_config needs task_key and env_key")
    return Task(
        key=str(key),
        env_key=str(env_key),
        prompt=str(config.get("prompt") or ""),
        template=str(env_key),
        difficulty=int(config["difficulty"]) if config.get("difficulty") else None,
        env_variables={name: str(value) for name, value in variables.items()},
        payload=payload,
    )


def _function(tool: ToolSpec) -> dict[str, JsonValue]:
    """Return a tool in OpenAI's form."""
    function: dict[str, JsonValue] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _content(result: ToolResult) -> Any:  # noqa: ANN401 - JSON
    """Return an answer as that environment gives it: JSON read, images as data URLs."""
    if result.images:
        urls = (f"data:image/png;base64,{base64.b64encode(i).decode()}" for i in result.images)
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"type": "text", "text": result.text}, *images]
    try:
        return json.loads(result.text)
    except ValueError:
        return {"error": result.text} if result.is_error else result.text
