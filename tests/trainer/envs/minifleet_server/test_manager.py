"""The manager of an instance: reset, databases, differences, and no code of a client."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.environment.base import ToolResult
from hillclimb.environment.task import Task
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import SETTINGS, FleetServer, fleet_server
from trainer.envs.minifleet import MinifleetProvider

TASK = minifleet_tasks(["booking"], "train", 1, seed=0)[0]


async def solve(server: FleetServer, made: Any, task: Task) -> None:
    """Play the expert with bare MCP messages."""
    run = expert(task)
    call = next(run)
    while True:
        params = {"name": call.name, "arguments": dict(call.arguments)}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await server.json("POST", f"{made['urls']['root']}mcp", json=body)
        try:
            call = run.send(ToolResult(text=answer["result"]["content"][0]["text"]))
        except StopIteration:
            return


async def query(server: FleetServer, made: Any, database: str, sql: str, **more: Any) -> Any:
    path = f"{made['urls']['manager']['api']}/resources/sqlite/{database}/query"
    return await server.json("POST", path, json={"query": sql, **more})


async def test_reset_brings_the_start_state_back(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    manager = made["urls"]["manager"]
    clean = await server.json("POST", f"{manager['diff']}/structured", json={})
    await solve(server, made, TASK)
    changed = await server.json("POST", f"{manager['diff']}/structured", json={})
    for body in ({}, {"timestamp": None, "seed": 3}):
        assert (await server.json("POST", manager["reset"], json=body))["success"] is True
    again = await server.json("POST", f"{manager['diff']}/structured", json={})
    assert sum(table["total_changes"] for table in changed["diff"].values()) == 1
    assert again == clean


async def test_the_databases_hold_what_the_app_does(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    await solve(server, made, TASK)
    api = made["urls"]["manager"]["api"]
    listed = await server.json("GET", f"{api}/resources")
    assert [each["name"] for each in listed["resources"]] == ["seed", "current"]
    described = await server.json("GET", f"{api}/resources/sqlite/current/describe")
    env = MinifleetProvider().make(TASK)
    await env.reset()
    seed, _ = env.tables()
    assert {table["name"] for table in described["tables"]} == set(seed)
    for name, rows in seed.items():
        answer = await query(server, made, "seed", f'SELECT id FROM "{name}"')
        assert sorted(str(row[0]) for row in answer["rows"]) == sorted(rows)
    sql = "SELECT count(*) AS n FROM bookings WHERE id != ?"
    before = await query(server, made, "seed", sql, args=["none"])
    after = await query(server, made, "current", sql, args=["none"])
    assert (after["columns"], after["rows"][0][0]) == (["n"], before["rows"][0][0] + 1)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM bookings",
        "ATTACH '/etc/passwd' AS other",
        "PRAGMA database_list",
        "SELECT load_extension('x')",
        "SELECT randomblob(1000000000)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
        "SELECT 1; SELECT 2",
        "SELECT * FROM nothing",
        "not sql",
    ],
)
async def test_a_query_only_reads_and_ends(server: FleetServer, sql: str) -> None:
    answer = await query(server, await server.make(), "current", sql)
    assert answer["success"] is False
    assert answer["error"]


async def test_values_that_json_has_not_are_text(server: FleetServer) -> None:
    answer = await query(server, await server.make(), "seed", "SELECT 9e999, x'00', NULL, 1.5")
    assert answer["rows"] == [["inf", "b'\\x00'", None, 1.5]]


async def test_writing_through_a_query_is_refused(server: FleetServer) -> None:
    answer = await query(server, await server.make(), "current", "SELECT 1", read_only=False)
    assert "through the tools" in answer["error"]


async def test_a_diff_can_leave_fields_and_tables_out(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    await solve(server, made, TASK)
    path = f"{made['urls']['manager']['diff']}/structured"
    full = (await server.json("POST", path, json={}))["diff"]["bookings"]
    ignore: dict[str, Any] = {"fields": ["guest"], "table_fields": {"bookings": ["nights"]}}
    body = {"ignore_config": ignore}
    cut = (await server.json("POST", path, json=body))["diff"]["bookings"]
    gone = full["added_rows"][0]["data"].keys() - cut["added_rows"][0]["data"].keys()
    assert gone == {"guest", "nights"} & full["added_rows"][0]["data"].keys()
    assert gone
    body = {"ignore_config": {"tables": ["bookings"]}}
    assert "bookings" not in (await server.json("POST", path, json=body))["diff"]


async def test_no_code_of_a_client_is_run(server: FleetServer) -> None:
    made = await server.make()
    body = {"function_code": "def verify(env): return 1", "function_name": "verify"}
    path = made["urls"]["manager"]["execute_verifier_function"]
    answer = await server.json("POST", path, json=body)
    assert answer["success"] is False
    await server.json("GET", f"{made['urls']['manager']['api']}/health")


async def test_a_gated_manager_wants_the_runner_token() -> None:
    async with fleet_server(replace(SETTINGS, runner_token="open-sesame")) as server:
        made = await server.make()
        path = made["urls"]["manager"]["reset"]
        await server.json("POST", path, 404, json={})
        token = (await server.json("GET", "/v1/runner-auth/token"))["token"]
        await server.json("POST", path, json={}, headers={"X-Runner-Token": token})
