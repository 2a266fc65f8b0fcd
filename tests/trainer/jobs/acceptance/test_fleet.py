"""The ladder `fleet`, against a server of Fleet's contract and its refusals."""

from __future__ import annotations

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
