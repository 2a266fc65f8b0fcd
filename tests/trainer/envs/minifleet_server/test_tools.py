"""Tools over MCP, message by message, and the SDK's two session styles."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client

from hillclimb.minifleet.catalog import APPS
from tests.trainer.envs.fleet_server import SETTINGS, FleetServer, fleet_server


async def send(server: FleetServer, made: Any, body: Any, status: int = 200, **more: Any) -> Any:
    return await server.json("POST", f"{made['urls']['root']}mcp", status, json=body, **more)


def message(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}


@pytest.mark.parametrize(
    ("asked", "agreed"),
    [("2025-11-25", "2025-11-25"), ("2025-03-26", "2025-03-26"), ("1999-01-01", "2025-11-25")],
)
async def test_initialize_agrees_on_a_version(server: FleetServer, asked: str, agreed: str) -> None:
    made = await server.make()
    answer = await send(server, made, message("initialize", protocolVersion=asked))
    assert answer["result"]["protocolVersion"] == agreed
    assert answer["result"]["capabilities"] == {"tools": {}}


async def test_tools_are_listed_and_called_without_a_session(server: FleetServer) -> None:
    made = await server.make("reddit")
    listed = (await send(server, made, message("tools/list")))["result"]["tools"]
    expected = [tool.spec for tool in APPS["reddit"].tools]
    assert [(tool["name"], tool["inputSchema"]) for tool in listed] == [
        (spec.name, spec.parameters) for spec in expected
    ]
    hints = {tool["name"]: tool["annotations"] for tool in listed}
    assert hints == {
        tool.spec.name: {"readOnlyHint": tool.is_read_only} for tool in APPS["reddit"].tools
    }
    called = await send(server, made, message("tools/call", name="no_such", arguments={}))
    assert called["id"] == 7
    assert called["result"]["isError"] is True
    assert called["result"]["content"][0]["text"].startswith('no tool "no_such"')


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (message("resources/list"), 200, -32601),
        (message("tools/call", name=3), 200, -32602),
        (message("tools/call", name="x", arguments=[1]), 200, -32602),
        ({"id": 1, "method": "ping"}, 400, -32600),
        ([message("ping")], 400, -32600),
    ],
)
async def test_a_bad_message_gets_the_protocols_error(
    server: FleetServer, body: Any, status: int, code: int
) -> None:
    answer = await send(server, await server.make(), body, status)
    assert answer["error"]["code"] == code


async def test_notifications_are_accepted_and_ping_is_answered(server: FleetServer) -> None:
    made = await server.make()
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert await send(server, made, note, 202) is None
    assert (await send(server, made, message("ping")))["result"] == {}
    await server.json("GET", f"{made['urls']['root']}mcp", 405)
    await send(server, made, message("ping"), 400, headers={"MCP-Protocol-Version": "1999"})


async def test_tools_of_an_ended_instance_are_gone(server: FleetServer) -> None:
    made = await server.make()
    await server.json("POST", f"/admin/instances/{made['instance_id']}/expire")
    answer = await send(server, made, message("tools/list"), 404)
    assert "ttl_expired" in answer["detail"]


@pytest.mark.parametrize("with_sessions", [False, True])
async def test_the_sdks_client_works_with_and_without_session_ids(with_sessions: bool) -> None:
    async with fleet_server(replace(SETTINGS, mcp_sessions=with_sessions)) as server:
        made = await server.make()
        async with (
            streamable_http_client(f"{made['urls']['root']}mcp") as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            before = (await server.stats())["requests"]["mcp_http"]
            for _ in range(5):
                await session.list_tools()
            after = (await server.stats())["requests"]["mcp_http"]
        known = {"Mcp-Session-Id": "0" * 32}
        await send(server, made, message("ping"), 404, headers=known)
    # The client also tries to open a stream when it is given a session.
    assert after - before <= 5 + with_sessions
