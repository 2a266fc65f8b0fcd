"""Instances: made, listed, kept alive, ended; and what Fleet's client is told when they are not."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from hillclimb.environment.errors import EnvUnavailable
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.server.app import create_app
from tests.trainer.envs.fleet_server import HEADERS, SETTINGS, FleetServer
from tests.trainer.envs.minifleet_server.conftest import Clock


async def status(server: FleetServer, instance: Any) -> str:
    row = await server.json("GET", f"/v1/env/instances/{instance['instance_id']}")
    found: str = row["status"]
    return found


async def test_an_instance_has_all_that_the_contract_names(server: FleetServer) -> None:
    made = await server.make(
        env_version="v1",
        run_id="run-1",
        region="us-east-1",
        env_variables={"CURRENT_DATE": "2026-05-05"},
        created_from="sdk",
        max_wait_seconds=870,
    )
    assert made["urls"]["root"].startswith(f"{server.url}/")
    assert made["urls"]["root"].endswith("/")
    assert set(made["urls"]["manager"]) == {
        "api",
        "docs",
        "reset",
        "diff",
        "snapshot",
        "execute_verifier_function",
        "execute_verifier_function_with_upload",
    }
    expected = ("booking", "v1", "running", "us-east-1", "run-1")
    assert (
        tuple(made[name] for name in ("env_key", "version", "status", "region", "run_id"))
        == expected
    )
    assert {"subdomain", "created_at", "updated_at", "team_id"} <= made.keys()
    assert await server.json("GET", f"/v1/env/instances/{made['instance_id']}") == made


async def test_listing_filters_and_a_runs_instances_end_together(server: FleetServer) -> None:
    mine = [await server.make(run_id="mine") for _ in range(2)]
    other = await server.make("reddit", run_id="other")
    listed = await server.json("GET", "/v1/env/instances", params={"run_id": "mine"})
    assert [each["instance_id"] for each in listed] == [each["instance_id"] for each in mine]
    runs = await server.json("GET", "/v1/env/runs")
    assert {row["run_id"]: row["running_count"] for row in runs} == {"mine": 2, "other": 1}
    ended = await server.json("DELETE", "/v1/env/instances/batch", params={"run_id": "mine"})
    assert {each["status"] for each in ended} == {"stopped"}
    assert [await status(server, each) for each in (*mine, other)] == [
        "stopped",
        "stopped",
        "running",
    ]
    again = await server.json("DELETE", "/v1/env/instances/batch", params={"run_id": "mine"})
    assert again == []
    assert len(await server.json("GET", "/v1/env/runs", params={"active": "inactive"})) == 1
    await server.json("DELETE", "/v1/env/instances/batch", 400)


async def test_ending_twice_is_no_error_and_ending_nothing_is(server: FleetServer) -> None:
    path = f"/v1/env/instances/{(await server.make())['instance_id']}"
    first, second = await server.json("DELETE", path), await server.json("DELETE", path)
    assert first == second
    assert first["terminated_at"] is not None
    await server.json("DELETE", "/v1/env/instances/never", 404)
    await server.json("GET", "/v1/env/instances/never", 404)


async def test_the_limit_is_told_with_its_numbers(server: FleetServer) -> None:
    made = [await server.make() for _ in range(3)]
    body = {"env_key": "booking"}
    refusal = await server.json("POST", "/v1/env/instances", 403, json=body)
    detail = refusal["detail"]
    assert detail["error_type"] == "instance_limit_exceeded"
    assert (detail["running_instances"], detail["instance_limit"]) == (3, 3)
    account = await server.json("GET", "/v1/account")
    assert (account["instance_limit"], account["instance_count"]) == (3, 3)
    await server.json("DELETE", f"/v1/env/instances/{made[0]['instance_id']}")
    await server.make()
    await server.json("PUT", "/admin/limit", json={"instance_limit": 1})
    assert (await server.json("GET", "/v1/account"))["instance_limit"] == 1


async def test_an_instance_ends_when_its_time_is_over(server: FleetServer, clock: Clock) -> None:
    short, long = await server.make(ttl_seconds=60), await server.make()
    clock.now += 59
    assert await status(server, short) == "running"
    clock.now += 1
    assert [await status(server, each) for each in (short, long)] == ["stopped", "running"]
    assert (await server.json("GET", "/v1/account"))["instance_count"] == 1
    assert (await server.stats())["instances"]["ended"] == {"ttl_expired": 1}
    clock.now += 3600
    assert await status(server, long) == "stopped"


async def test_an_instance_without_a_heartbeat_ends(server: FleetServer, clock: Clock) -> None:
    made = await server.make(heartbeat_interval=30)
    path = f"/v1/env/instances/{made['instance_id']}/heartbeat"
    for _ in range(3):
        clock.now += 30
        beat = await server.json("POST", path, json={})
        assert beat["success"] is True
        assert beat["deadline_timestamp"] == clock.now + beat["interval_seconds"]
    clock.now += 31
    assert await status(server, made) == "stopped"
    assert (await server.json("POST", path, json={}))["success"] is False
    assert (await server.stats())["instances"]["ended"] == {"heartbeat_missed": 1}


async def test_a_heartbeat_that_nobody_asked_for_is_harmless(server: FleetServer) -> None:
    made = await server.make()
    beat = await server.json("POST", f"/v1/env/instances/{made['instance_id']}/heartbeat")
    assert beat == {"success": True, "instance_id": made["instance_id"]}


async def test_a_repeated_request_id_is_told_its_instance(server: FleetServer) -> None:
    body, header = {"env_key": "booking"}, {"X-Request-ID": "one"}
    made = await server.json("POST", "/v1/env/instances", json=body, headers=header)
    again = await server.json("POST", "/v1/env/instances", 409, json=body, headers=header)
    assert again["detail"]["error"] == "duplicate_request_id"
    assert again["detail"]["instance_id"] == made["instance_id"]
    other = {"env_key": "reddit"}
    refusal = await server.json("POST", "/v1/env/instances", 409, json=other, headers=header)
    assert "another body" in refusal["detail"]
    assert (await server.json("GET", "/v1/account"))["instance_count"] == 1


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"env_key": "nowhere"}, 400, "Environment 'nowhere' not found"),
        ({"env_key": "booking", "env_version": "v9"}, 400, "Version 'v9' not found"),
        ({"env_key": "booking", "data_key": "reddit/train/x/000001"}, 400, "not found for"),
        ({"env_key": "booking", "region": "mars-1"}, 400, "Region mars-1 not supported"),
        ({"env_key": "booking", "ttl_seconds": 0}, 422, "ttl_seconds"),
        ({"env_key": "booking", "heartbeat_interval": 99_999}, 422, "heartbeat_interval"),
        ({}, 422, "env_key"),
        ([], 422, "not a JSON object"),
    ],
)
async def test_a_bad_create_is_refused(
    server: FleetServer, body: Any, status: int, words: str
) -> None:
    refusal = await server.json("POST", "/v1/env/instances", status, json=body)
    assert words in str(refusal["detail"])
    assert (await server.stats())["instances"]["created"] == 0


async def test_a_body_that_is_no_json_is_refused(server: FleetServer) -> None:
    refusal = await server.json("POST", "/v1/env/instances", 422, content=b"{")
    assert "not JSON" in refusal["detail"]


async def test_the_key_is_checked(server: FleetServer) -> None:
    made = await server.make()
    wrong = {"Authorization": "Bearer wrong"}
    for path in ("/v1/account", "/v1/tasks", "/v1/env/instances", "/admin/stats"):
        await server.json("GET", path, 401, headers=wrong)
        async with httpx.AsyncClient(base_url=server.url) as nobody:
            assert (await nobody.get(path)).status_code == 401
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    await server.json("POST", f"{made['urls']['root']}mcp", 401, json=call, headers=wrong)
    await server.json("POST", made["urls"]["manager"]["reset"], 401, json={}, headers=wrong)


async def test_environments_and_regions_are_listed(server: FleetServer) -> None:
    listed = await server.json("GET", "/v1/env/")
    assert [each["env_key"] for each in listed] == list(APPS)
    one = await server.json("GET", "/v1/env/booking")
    assert one["versions"] == {one["default_version"]: "v1"}
    await server.json("GET", "/v1/env/nowhere", 404)
    assert "us-west-1" in await server.json("GET", "/v1/regions")
    assert (await server.json("GET", "/v1/runner-auth/token"))["token"]


async def test_the_admin_routes_are_for_this_machine_only() -> None:
    for host, status in (("127.0.0.1", 200), ("203.0.113.9", 403)):
        transport = httpx.ASGITransport(create_app(SETTINGS), client=(host, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            assert (await client.get("/admin/stats", headers=HEADERS)).status_code == status


async def test_an_instance_that_does_not_start_counts_no_more(
    server: FleetServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(_: MinifleetEnv) -> Any:
        raise EnvUnavailable("no start state")

    with monkeypatch.context() as patched:
        patched.setattr(MinifleetEnv, "reset", broken)
        made = await server.http.post("/v1/env/instances", json={"env_key": "booking"})
    assert made.status_code == 500
    stats = (await server.stats())["instances"]
    assert (stats["running"], stats["ended"]) == (0, {"start_failed": 1})
