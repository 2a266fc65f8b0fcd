"""Whole episodes over the wire with the data plane's own clients, httpx and mcp 2."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from hillclimb.environment.base import ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import FleetServer, fleet_server

TASK = minifleet_tasks(["booking"], "train", 1, seed=0)[0]


def bundle(source: str, requirements: str | None = "fleet-python") -> str:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        if requirements is not None:
            archive.writestr("requirements.txt", requirements)
        archive.writestr("verifier.py", source)
    return base64.b64encode(buffer.getvalue()).decode()


async def execute(server: FleetServer, instance: str, **body: Any) -> Any:
    arguments = {"args_array": [{"env": instance}], "function_name": "verify", "timeout": 30}
    return await server.json("POST", "/v1/verifiers/execute", json=arguments | body)


async def play(session: ClientSession, task: Task) -> None:
    """Play the scripted expert over MCP."""
    run = expert(task)
    call = next(run)
    while True:
        result = await session.call_tool(call.name, dict(call.arguments))
        text = result.content[0].text
        try:
            call = run.send(ToolResult(text=text, is_error=bool(result.is_error)))
        except StopIteration:
            return


@pytest.mark.parametrize("path", ["mcp", "api/v1/mcp"])
async def test_an_expert_over_mcp_is_graded_1(path: str) -> None:
    async with fleet_server() as server:
        listed = await server.json("GET", "/v1/tasks", params={"env_key": "booking"})
        row = next(each for each in listed["tasks"] if each["key"] == TASK.key)
        data = {"data_key": row["data_id"], "data_version": row["data_version"]}
        made = await server.make(env_version=row["version"], **data)
        before = await execute(server, made["instance_id"], key=TASK.key)
        async with (
            streamable_http_client(made["urls"]["root"] + path) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tools = await session.list_tools()
            assert "search_hotels" in [tool.name for tool in tools.tools]
            await play(session, TASK)
        after = await execute(server, made["instance_id"], bundle=bundle(row["verifier_func"]))
        ended = await server.json("DELETE", f"/v1/env/instances/{made['instance_id']}")
    assert (before["success"], before["result"]) == (True, 0)
    assert (after["success"], after["result"]) == (True, 1)
    assert ended["status"] == "stopped"
