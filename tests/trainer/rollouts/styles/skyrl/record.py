"""Plays `cases.py` with SkyRL's and OpenEnv's own code, and writes `recorded.json`.

    .venv-peers/bin/python tests/trainer/rollouts/styles/skyrl/record.py SKYRL_FLEET OPENENV

The arguments are git directories of fleet-ai/SkyRL-Fleet and fleet-ai/OpenEnv. `FleetTaskEnv` of
both, the parser, the tools with their retries and the reading of MCP's results run unchanged;
stand-ins are the network (MCP's session and the SDK's verifier), telemetry and pauses. The
generator is played as `SkyRLGymGenerator` does: a turn ends at its stop string, rewards of steps
add up, and an exception of a step gives 0.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import types
from datetime import datetime
from pathlib import Path
from typing import Any

import mcp.types
from cases import CASES, PROMPTS, TODAY, TOOLS, Case, PromptCase, World

SKYRL = ("env.py", "tool_call_parser.py")
OPENENV = ("task_env.py", "mcp_tools.py", "fleet_mcp_client.py", "models.py")
STOP = "</tool_call>"


def show(repository: str, path: str) -> str:
    command = ["git", "--git-dir", repository, "show", f"HEAD:{path}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def module(name: str, **content: Any) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__path__ = []
    made.__dict__.update(content)
    sys.modules[name] = made
    return made


def install(skyrl: str, openenv: str, root: Path) -> None:
    """Put the files into packages, with stand-ins for what they import beside each other."""
    nothing = lambda *_, **__: None  # noqa: E731
    module("core")
    module("core.env_server")
    module("core.env_server.types", Action=object)
    module("skyrl_gym")
    module("skyrl_gym.envs")
    module(
        "skyrl_gym.envs.base_text_env",
        BaseTextEnv=object,
        BaseTextEnvStepOutput=dict,
        ConversationType=list,
    )
    module("skyrl_gym.envs.fleet_task").__path__ = [str(root / "skyrl")]
    module("envs")
    fleet_env = module("envs.fleet_env")
    fleet_env.__path__ = [str(root / "openenv")]
    module("envs.fleet_env.client", FleetEnvClient=object)
    names = ("fleet_exception", "fleet_warning", "fleet_info", "fleet_error")
    names += ("set_task_context", "clear_task_context")
    module("envs.fleet_env.telemetry", **dict.fromkeys(names, nothing))
    for folder, repository, path, files in (
        ("skyrl", skyrl, "skyrl-gym/skyrl_gym/envs/fleet_task", SKYRL),
        ("openenv", openenv, "src/envs/fleet_env", OPENENV),
    ):
        (root / folder).mkdir()
        for file in files:
            (root / folder / file).write_text(show(repository, f"{path}/{file}"))


async def no_pause(_: float) -> None:
    """Stand in for `asyncio.sleep`."""


def environment(task: dict[str, Any], case: Case, world: World) -> Any:
    """Return SkyRL's environment on a world instead of an instance."""
    from envs.fleet_env import fleet_mcp_client, mcp_tools, task_env  # noqa: PLC0415
    from skyrl_gym.envs.fleet_task import env as skyrl_env  # noqa: PLC0415

    class Client(fleet_mcp_client.FleetMCPClient):
        async def _list_tools_impl(self) -> list[Any]:
            if self.url.endswith("second"):
                raise ConnectionError("404")
            return [mcp.types.Tool(**tool) for tool in TOOLS]

        async def _call_tool_impl(self, name: str, arguments: Any) -> Any:
            mcp.types.CallToolRequestParams(name=name, arguments=arguments)
            text, is_error = world.answer(name, arguments)
            content = [mcp.types.TextContent(type="text", text=text)]
            result = mcp.types.CallToolResult(content=content, isError=is_error)
            return self._extract_tool_result(result)

    class Verified:
        def __init__(self, **_: Any) -> None:
            pass

        async def verify_detailed_async(self, *_: Any, **__: Any) -> Any:
            return types.SimpleNamespace(**case.answer(world), error=None, execution_id="e")

    class Instance(task_env.FleetTaskEnv):
        async def _ensure_provisioned(self) -> None:
            self._orch = types.SimpleNamespace(_fleet_env=object(), _timeout=1.0)
            # Most images serve one of the two endpoints only.
            self._tools = mcp_tools.FleetMCPTools("key", ("first", "second"), initial_wait=0)

    module("fleet")
    module("fleet._async")
    module("fleet._async.tasks", Task=Verified)
    mcp_tools.FleetMCPClient = Client
    sys.modules["envs.fleet_env"].FleetTaskEnv = Instance

    class Today(datetime):
        @classmethod
        def now(cls, *_: Any) -> datetime:
            return datetime.fromisoformat(TODAY)

    skyrl_env.datetime = Today
    skyrl_env.load_tasks_from_json = lambda _: {"t": task}
    config = {"tasks_file": "tasks.json", "api_key": "key", "partial_reward": case.partial}
    return skyrl_env.FleetTaskEnv(config, {"task_key": "t", "max_turns": case.max_turns})


async def play(case: Case) -> dict[str, Any]:
    """Play a case to its end and return what happened."""
    world = World()
    verifier = None if case.verifier is None else "def verify(env): ..."
    task = {"key": "t", "env_key": "counting", "prompt": "Count.", "verifier_func": verifier}
    env = environment(task, case, world)
    await env.init_async([])
    observations: list[str] = []
    reward, is_done, turn = 0.0, False, 0
    while not is_done:
        text = case.turns[min(turn, len(case.turns) - 1)]
        turn += 1
        before, tag, _ = text.partition(STOP)
        try:
            step = await env.step_async(before + tag)
        except Exception as fault:  # noqa: BLE001 - whatever it is, the trajectory gets 0
            return {"crash": type(fault).__name__, "reward": 0.0, "calls": world.calls}
        reward += step["reward"]
        is_done = step["done"]
        observations += [as_text(message["content"]) for message in step["observations"]]
    # The observation after the last turn is no part of a trajectory.
    seen = observations[: turn - 1]
    return {"observations": seen, "reward": reward, "turns": turn, "calls": world.calls}


def as_text(content: Any) -> str:
    """As `SkyRLGymGenerator._sanitize_messages_for_template`."""
    if not isinstance(content, list):
        return str(content)
    return "\n".join(
        str(each["text"]) if isinstance(each, dict) and "text" in each else str(each)
        for each in content
    )


async def prompt_of(case: PromptCase) -> list[dict[str, str]]:
    task = {"key": "t", "env_key": case.env_key, "prompt": case.prompt}
    env = environment(task | {"env_variables": case.env_variables}, CASES[0], World())
    messages, _ = await env.init_async([])
    return list(messages)


async def main() -> None:
    asyncio.sleep = no_pause  # type: ignore[assignment]
    recorded = {
        "cases": {case.name: await play(case) for case in CASES},
        "prompts": {case.name: await prompt_of(case) for case in PROMPTS},
    }
    path = Path(__file__).with_name("recorded.json")
    path.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        install(sys.argv[1], sys.argv[2], Path(folder))
        asyncio.run(main())
