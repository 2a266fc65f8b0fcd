"""Faults on the wire: each kind, its window of time, and that equal seeds give equal faults."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from hillclimb.minifleet.server.faults.injection import FaultCounter, RequestFaults
from hillclimb.minifleet.server.faults.plan import FaultRule, WireFaults
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import FleetServer
from tests.trainer.envs.minifleet_server.conftest import Clock
from tests.trainer.envs.minifleet_server.test_episodes import execute
from tests.trainer.envs.minifleet_server.test_tools import message

TASK = minifleet_tasks(["booking"], "train", 1, seed=0)[0]
CREATE = {"json": {"env_key": "booking"}}


async def mcp(server: FleetServer, made: Any, body: Any, status: int = 200) -> Any:
    return await server.json("POST", f"{made['urls']['root']}mcp", status, json=body)


@pytest.mark.parametrize("retryable", [True, False, None])
async def test_an_error_says_whether_to_try_again(
    server: FleetServer, retryable: bool | None
) -> None:
    await server.faults(
        {"on": ["create"], "error_rate": 1.0, "error_status": 503, "retryable": retryable}
    )
    refusal = await server.json("POST", "/v1/env/instances", 503, **CREATE)
    assert refusal["detail"].get("retryable") is retryable
    stats = await server.stats()
    assert (stats["instances"]["created"], stats["faults"]) == (0, {"error": 1})


async def test_a_lost_reply_leaves_what_was_done(server: FleetServer) -> None:
    await server.faults({"on": ["create"], "lost_reply_rate": 1.0})
    header = {"X-Request-ID": "lost"}
    await server.json("POST", "/v1/env/instances", 502, headers=header, **CREATE)
    await server.faults()
    again = await server.json("POST", "/v1/env/instances", 409, headers=header, **CREATE)
    found = await server.json("GET", f"/v1/env/instances/{again['detail']['instance_id']}")
    assert found["status"] == "running"


async def test_a_slow_create_can_be_adopted_while_it_is_pending(server: FleetServer) -> None:
    await server.faults({"on": ["create"], "latency_s": 0.4})
    header = {"X-Request-ID": "slow"}
    first = asyncio.create_task(server.json("POST", "/v1/env/instances", headers=header, **CREATE))
    while not (await server.stats())["instances"]["created"]:
        pass
    again = await server.json("POST", "/v1/env/instances", 409, headers=header, **CREATE)
    path = f"/v1/env/instances/{again['detail']['instance_id']}"
    assert (await server.json("GET", path))["status"] == "pending"
    assert len(await server.json("GET", "/v1/env/instances")) == 1
    assert (await first)["instance_id"] == again["detail"]["instance_id"]
    assert (await server.json("GET", path))["status"] == "running"


async def test_a_hang_ends_with_the_client_and_nothing_was_done(server: FleetServer) -> None:
    await server.faults({"on": ["create"], "hang_rate": 1.0})
    before = len(asyncio.all_tasks())
    async with httpx.AsyncClient(base_url=server.url, timeout=0.2) as impatient:
        headers = dict(server.http.headers)
        with pytest.raises(httpx.ReadTimeout):
            await impatient.post("/v1/env/instances", headers=headers, **CREATE)
    async with asyncio.timeout(5.0):
        while len(asyncio.all_tasks()) > before:  # the server runs in this event loop
            await server.stats()
    await server.faults({"on": ["create"], "hang_rate": 1.0, "hang_s": 0.05})
    await server.json("POST", "/v1/env/instances", 504, **CREATE)
    stats = await server.stats()
    assert (stats["instances"]["created"], stats["faults"]) == (0, {"hang": 2})


async def test_latency_is_waited_for(server: FleetServer) -> None:
    await server.faults({"on": ["account"], "latency_s": 0.15})
    begun = time.perf_counter()
    await server.json("GET", "/v1/account")
    assert time.perf_counter() - begun >= 0.15


async def test_an_outage_ends_by_itself(server: FleetServer, clock: Clock) -> None:
    made = await server.make(data_key=TASK.key)
    outage = {"on": ["verify"], "error_rate": 1.0, "error_status": 503, "for_s": 30}
    await server.json("POST", "/admin/faults", json=outage)
    body = {"key": TASK.key, "args_array": [{"env": made["instance_id"]}]}
    await server.json("POST", "/v1/verifiers/execute", 503, json=body)
    clock.now += 29.9
    await server.json("POST", "/v1/verifiers/execute", 503, json=body)
    clock.now += 0.2
    assert (await execute(server, made["instance_id"], key=TASK.key))["success"] is True


async def test_the_first_tool_lists_of_an_instance_can_be_empty(server: FleetServer) -> None:
    await server.faults({"on": ["tool_list"], "empty_tools_first": 2})
    for _ in range(2):
        made = await server.make()
        answers = [await mcp(server, made, message("tools/list")) for _ in range(3)]
        assert [bool(each["result"]["tools"]) for each in answers] == [False, False, True]


async def test_an_instance_can_expire_under_a_call(server: FleetServer) -> None:
    made = await server.make()
    await server.faults({"on": ["tool_call"], "expire_rate": 1.0})
    await mcp(server, made, message("tools/list"))
    await mcp(server, made, message("tools/call", name="search_hotels"), 404)
    assert (await server.stats())["instances"]["ended"] == {"ttl_expired": 1}


async def test_a_fault_can_be_of_one_environment(server: FleetServer) -> None:
    await server.faults({"on": ["tool_list"], "error_rate": 1.0, "env_keys": ["reddit"]})
    booking, reddit = await server.make(), await server.make("reddit")
    await mcp(server, booking, message("tools/list"))
    await mcp(server, reddit, message("tools/list"), 502)


async def test_a_verifier_can_fail_in_each_way(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    answers = {}
    for fault in ("crash_rate", "judge_error_rate", "no_result_rate"):
        await server.faults({"on": ["verify"], fault: 1.0})
        answers[fault] = await execute(server, made["instance_id"], key=TASK.key)
    crash, judge, void = answers.values()
    assert (crash["success"], crash["error"]["type"]) == (False, "RuntimeError")
    assert (judge["success"], judge["result"]) == (True, 0)
    assert "JUDGE ERROR:" in judge["stdout"]
    assert (void["success"], void["result"]) == (True, None)


async def test_bad_faults_are_refused_with_the_field(server: FleetServer) -> None:
    for rule, word in (({"error_rate": 2}, "error_rate"), ({"on": ["lunch"]}, "on")):
        refusal = await server.json("PUT", "/admin/faults", 422, json={"rules": [rule]})
        assert word in refusal["detail"][0]["loc"]
    assert (await server.json("GET", "/admin/faults")) == {"seed": 0, "rules": []}
    with pytest.raises(ValidationError, match="latency_p99_s"):
        FaultRule(latency_s=2.0, latency_p99_s=1.0)


def drawn(seed: int, lanes: int = 200) -> list[tuple[bool, float]]:
    rule = FaultRule(error_rate=0.1, latency_s=0.05, latency_p99_s=0.5)
    striker = RequestFaults(lambda: 0.0)
    striker.replace(WireFaults(seed=seed, rules=(rule,)))
    names = [FaultCounter(f"{name}") for name in range(lanes)]
    strikes = [striker.draw("tool_call", lane) for lane in names for _ in range(10)]
    return [(strike.error is not None, strike.delay_s) for strike in strikes]


def test_equal_seeds_give_equal_faults_at_the_rates_asked_for() -> None:
    first, second, other = drawn(1), drawn(1), drawn(2)
    assert first == second != other
    assert 0.08 < statistics.fmean(failed for failed, _ in first) < 0.12
    delays = sorted(delay for _, delay in first)
    assert delays[len(delays) // 2] == pytest.approx(0.05, rel=0.15)
    assert delays[len(delays) * 99 // 100] == pytest.approx(0.5, rel=0.35)


def test_an_instances_faults_do_not_depend_on_other_instances() -> None:
    striker = RequestFaults(lambda: 0.0)
    striker.replace(WireFaults(rules=(FaultRule(error_rate=0.5),)))
    alone, crowded = FaultCounter("one"), FaultCounter("one")
    expected = [striker.draw("tool_call", alone).error is None for _ in range(50)]
    found = []
    for _ in range(50):
        striker.draw("tool_call", FaultCounter("another"))
        found.append(striker.draw("tool_call", crowded).error is None)
    assert found == expected
