"""OpenEnv's `FleetTaskEnv` on Hillclimb's Fleet client: one task, stepped by a script.

Training does not use it: there the rollout worker ends an episode, and the deadlines of the rollout
bound every operation.

Differences from OpenEnv's class: `close` deletes the instance; an unknown reward is None, never 0
or 1; a reset without an answer raises, so there is no `reset_timeout_s`: OpenEnv goes on after it,
and the manager may carry the reset out in the middle of the episode.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import uuid
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult, ToolSpec
from hillclimb.environment.errors import EnvAtCapacity, RolloutError
from hillclimb.environment.task import Task
from hillclimb.spec.environment.fleet import DEFAULT_BASE_URL
from trainer.attempt.destinations import allowed_hosts
from trainer.envs.fleet.choice import API_KEY, BASE_URL
from trainer.envs.fleet.env import SUBMIT, FleetEnv
from trainer.envs.fleet.instances.instances import LeaseOptions
from trainer.envs.fleet.loop_thread import LoopThread
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.api import FleetAccount
from trainer.envs.fleet.wire.results import without_placeholders

T = TypeVar("T")
TTL_S = 900
"""OpenEnv's own default for tasks without a screen."""
HEARTBEAT_S = 60
Observation = dict[str, Any]
"""`prompt`, `observation` (the tool's result), `step`, `task_key`, `modality`, `tools`."""
Info = dict[str, Any]
"""`step`, `done_reason`, and where they apply `tool_result`, `tool_error`, `submitted_answer`,
`reward_computed`."""


class FleetTaskEnv:
    """One task with Gymnasium's `reset` and `step`, one episode at a time.

    `reset`, `step` and `close` block; `reset_async`, `step_async` and `close_async` are for callers
    with an event loop. An object is used in one of the two ways.

    Args:
        task_config: a dataset's row: `task_key` or `key`, `prompt`, `env_key`, and where there are
            any `env_version`, `data_key`, `data_version`, `env_variables`, `verifier_code`.
        api_key: default `FLEET_API_KEY`.
        ttl_seconds: lifetime of the instance.
        max_steps: the episode ends after so many steps.
        request_timeout_s: limit of a single request.
        partial_reward: give a failed task the share of its checks that passed.
        base_url: of the platform; default `FLEET_BASE_URL`, else Fleet's own.

    Example:
        env = FleetTaskEnv({"task_key": "t1", "prompt": "Book a room.", "env_key": "booking"})
        observation = env.reset()
        observation, reward, done, info = env.step({"tool": "search", "params": {}})
        env.close()
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
            raise ValueError(f"FleetTaskEnv needs a key: pass api_key or set {API_KEY}")
        self._task = _task(task_config)
        self._max_steps = max_steps
        url = base_url or os.environ.get(BASE_URL) or DEFAULT_BASE_URL
        self._provider = FleetProvider(
            FleetAccount(base_url=url, key=key, allowed=allowed_hosts(operators_url=url)),
            (self._task.env_key,),
            LeaseOptions(
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
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: LoopThread | None = None
        self.final_reward: float | None = None
        """The verifier's score; None before the episode has ended, and where there is no score."""

    def reset(self, seed: int | None = None) -> Observation:
        """Start an episode and return the first observation; `seed` has no effect.

        Raises:
            EnvUnavailable: the environment does not start.
            RuntimeError: called where an event loop runs, or after `close`.
        """
        return self._block(lambda: self.reset_async(seed), "reset")

    def step(self, action: Mapping[str, Any]) -> tuple[Observation, float | None, bool, Info]:
        """Call a tool: `{"tool", "params", "done"}`; return observation, reward, done and info.

        The reward is 0.0 until the last step, whose reward is the verifier's score.

        Raises:
            RuntimeError: the episode is over or has not started, or an event loop runs here.
        """
        return self._block(lambda: self.step_async(action), "step")

    def close(self) -> None:
        """Score an unfinished episode, delete the instance; a second call does nothing.

        Raises:
            RuntimeError: called where an event loop runs.
        """
        if self._is_closed:
            return
        try:
            self._block(self.close_async, "close")
        finally:
            thread, self._thread = self._thread, None
            if thread is not None:
                thread.close()

    async def reset_async(self, seed: int | None = None) -> Observation:
        """As `reset`, in the caller's event loop."""
        if self._is_closed:
            raise RuntimeError("the environment is closed: make another one")
        self._check_loop()
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
        """As `step`, in the caller's event loop."""
        if self._env is None or self._is_over:
            raise RuntimeError("the episode is not running: call reset first")
        self._check_loop()
        self._step += 1
        info: Info = {"step": self._step}
        result = await self._act(self._env, action, info)
        is_done = bool(action.get("done")) or "submitted_answer" in info
        is_last = self._step >= self._max_steps
        self._is_over = is_done or is_last
        info["done_reason"] = "agent_done" if is_done else "max_steps" if is_last else None
        reward: float | None = 0.0
        if self._is_over:
            reward = self.final_reward = await self._grade(self._env)
            info["reward_computed"] = reward is not None
        return self._observation(result), reward, self._is_over, info

    async def close_async(self) -> None:
        """As `close`, in the caller's event loop."""
        self._check_loop()
        self._is_closed = True
        if self._env is not None and not self._is_over:
            self.final_reward = await self._grade(self._env)
        await self._leave()
        await self._provider.close()

    def _block(self, operation: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Run an operation to its end on this environment's own event loop."""
        if _is_loop_running():
            raise RuntimeError(f"an event loop runs here: await {name}_async instead of {name}")
        if self._thread is None:
            self._thread = LoopThread("fleet-task-env")
        return self._thread.run(operation())

    def _check_loop(self) -> None:
        """Raise a RuntimeError where another event loop holds the connections."""
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise RuntimeError(
                "the environment belongs to another event loop: use reset, step and close without"
                " one, or the async methods in one"
            )
        self._loop = loop

    async def _act(self, env: FleetEnv, action: Mapping[str, Any], info: Info) -> Any:  # noqa: ANN401 - JSON
        tool, arguments = action.get("tool"), action.get("params") or {}
        if not tool:
            return {}
        try:
            answer = await env.call(str(tool), arguments)
        except RolloutError as error:
            info["tool_error"] = str(error)
            return {"error": str(error)}
        if answer.ends_episode and tool == SUBMIT:
            info["submitted_answer"] = arguments.get("answer")
        if answer.is_error:
            info["tool_error"] = answer.text
        info["tool_result"] = _content(answer)
        return info["tool_result"]

    async def _grade(self, env: FleetEnv) -> float | None:
        try:
            return (await env.score()).score
        except RolloutError:
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


def make_fleet_task_env(task_config: Mapping[str, Any], **options: Any) -> FleetTaskEnv:  # noqa: ANN401 - FleetTaskEnv's
    """Return the environment of a task; `options` are the other arguments of `FleetTaskEnv`."""
    return FleetTaskEnv(task_config, **options)


def _is_loop_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


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
    """Return a tool in OpenAI's function format."""
    function: dict[str, JsonValue] = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _content(result: ToolResult) -> Any:  # noqa: ANN401 - JSON
    """Return a result as OpenEnv does: JSON parsed, images as data URLs."""
    if result.images:
        urls = (f"data:image/png;base64,{base64.b64encode(i).decode()}" for i in result.images)
        images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        return [{"type": "text", "text": without_placeholders(result)}, *images]
    try:
        return json.loads(result.text)
    except ValueError:
        return {"error": result.text} if result.is_error else result.text
