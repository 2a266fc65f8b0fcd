"""The ladder `fleet`, against a server of Fleet's contract and its refusals."""

from __future__ import annotations

import socket
import time
from dataclasses import replace
from typing import Any

import pytest

from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.targets import FACTS
from hillclimb.process.redactor import Redactor
from tests.trainer.envs.fleet.scene import TASK
from tests.trainer.envs.fleet_server import API_KEY, SETTINGS, fleet_server
from trainer.envs.fleet.wire.api import FleetAccount
from trainer.jobs.acceptance import fleet
from trainer.jobs.acceptance.fleet import FleetLadder


async def climbed(
    url: str, *, key: str = API_KEY, task: str = TASK.key
) -> tuple[CheckObservation, ...]:
    ladder = FleetLadder(FleetAccount(base_url=url, key=key), "booking", task)
    return await climb(ladder, Redactor((key,)))


async def test_an_instance_is_created_reset_called_verified_and_deleted() -> None:
    async with fleet_server() as server:
        observations = await climbed(server.url)
        assert [each.name for each in observations if each.passed] == list(FACTS["fleet"].checks)
        assert f"{TASK.key} is graded 0 in its start state" in observations[4].seen
        assert await server.json("GET", "/v1/env/instances") == []


@pytest.mark.parametrize(
    ("change", "failed", "remedy"),
    [
        ({"key": "key-of-nobody"}, "key", "set FLEET_API_KEY to a key of this platform"),
        ({"key": ""}, "key", "set FLEET_API_KEY in this environment"),
        ({"task": "booking-train-99999"}, "created", "name a task of this environment"),
    ],
)
async def test_a_refusal_names_the_remedy_and_leaves_nothing(
    change: dict[str, Any], failed: str, remedy: str
) -> None:
    async with fleet_server() as server:
        *_, last = await climbed(server.url, **change)
        assert (last.name, last.passed) == (failed, False)
        assert remedy in last.remedy
        assert "key-of-nobody" not in last.seen + last.remedy
        assert await server.json("GET", "/v1/env/instances") == []


async def test_an_address_where_nobody_listens_is_said_at_once() -> None:
    started = time.monotonic()
    (only,) = await climbed("http://127.0.0.1:9")
    assert time.monotonic() - started < 3.0
    assert "http://127.0.0.1:9: unreachable" in only.seen
    assert "check that this machine reaches the platform" in only.remedy


async def test_a_server_that_never_answers_is_given_a_few_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fleet.ANSWER_S < 10.0
    monkeypatch.setattr(fleet, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        (only,) = await climbed(f"http://127.0.0.1:{silent.getsockname()[1]}")
    assert (only.name, only.passed) == ("key", False)
    assert "did not answer in 0.2 s" in only.seen
    assert only.seconds < 3.0


async def test_a_server_that_is_no_platform_is_said_to_be_the_wrong_one() -> None:
    async with fleet_server() as server:
        (only,) = await climbed(f"{server.url}/elsewhere")
    assert f"{server.url}/elsewhere: not_found (404)" in only.seen
    assert "correct FLEET_BASE_URL" in only.remedy
    assert "--env" not in only.remedy


async def test_a_full_account_is_named() -> None:
    async with fleet_server(replace(SETTINGS, instance_limit=0)) as server:
        *_, last = await climbed(server.url)
    assert (last.name, "have its limit raised" in last.remedy) == ("created", True)


async def test_a_reset_that_fails_ends_the_ladder_and_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fleet, "RESET_S", 0.5)
    async with fleet_server() as server:
        await server.faults({"on": ["reset"], "error_rate": 1.0, "error_status": 500})
        *_, last = await climbed(server.url)
        assert (last.name, last.passed) == ("reset", False)
        assert await server.json("GET", "/v1/env/instances") == []
