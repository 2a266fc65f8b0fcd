"""A runner's name and its attempts belong to who registered it, not to the project's runner key."""

from __future__ import annotations

import hashlib
from datetime import timedelta

import httpx
import pytest
from sqlalchemy import update

from api.runs.deadlines import RUNNER_LEASE_S
from api.runs.journal import utc_now
from api.tables import Attempt, Runner
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import RUNNER_TOKEN, bearer
from tests.api.http.routes.test_runners import BOX, launch, register

KEY = bearer(RUNNER_TOKEN)
MINE = KEY | {"Hillclimb-Runner-Identity": "mine-" + "0" * 32}
FOREIGN = KEY | {"Hillclimb-Runner-Identity": "other-" + "0" * 32}
STRANGERS = pytest.mark.parametrize("headers", [KEY, FOREIGN], ids=["none", "foreign"])


async def take(client: httpx.AsyncClient, headers: dict[str, str]) -> httpx.Response:
    return await client.post("/v1/runners", json=BOX, headers=headers)


async def launched(client: httpx.AsyncClient, stage: Stage) -> tuple[str, str]:
    """A runner with an identity and the attempt that it has claimed."""
    runner_id, plan = await launch(client, stage)
    held = {**BOX, "attempts": [plan.attempt_id]}
    answer = await client.post("/v1/runners", json=held, headers=MINE)
    assert answer.json()["runner_id"] == runner_id
    return runner_id, plan.attempt_id


def expire(stage: Stage) -> None:
    long_ago = utc_now() - timedelta(seconds=RUNNER_LEASE_S)
    with stage.database.transaction() as session:
        session.execute(update(Runner).values(lease_until=long_ago))


@STRANGERS
async def test_another_runner_of_the_project_takes_neither_name_nor_attempts(
    client: httpx.AsyncClient, stage: Stage, headers: dict[str, str]
) -> None:
    runner_id, attempt_id = await launched(client, stage)
    # Not even after its lease, while an attempt of it has not ended.
    for _ in range(2):
        answer = await take(client, headers)
        assert (answer.status_code, answer.json()["code"]) == (409, "runner_name_in_use")
        assert "box" in answer.json()["detail"]
        expire(stage)
    end = {"reason": "trainer_crashed", "message": "it is mine now"}
    for path, body in {
        "heartbeat": {"attempts": [], "draining": True},
        "claim": None,
        f"attempts/{attempt_id}/end": end,
    }.items():
        url = f"/v1/runners/{runner_id}/{path}"
        assert (await client.post(url, json=body, headers=headers)).status_code == 409, path
    with stage.database.transaction() as session:
        assert session.get_one(Attempt, attempt_id).state == "claimed"
    beat = {"attempts": [attempt_id]}
    url = f"/v1/runners/{runner_id}/heartbeat"
    assert (await client.post(url, json=beat, headers=MINE)).json()["commands"] == []


@STRANGERS
async def test_a_name_is_free_once_its_runner_is_gone_and_has_nothing_left(
    client: httpx.AsyncClient, stage: Stage, headers: dict[str, str]
) -> None:
    assert (await take(client, MINE)).status_code == 200
    assert (await take(client, headers)).status_code == 409
    expire(stage)
    taken = await take(client, headers)
    assert taken.status_code == 200
    url = f"/v1/runners/{taken.json()['runner_id']}/heartbeat"
    assert (await client.post(url, json={"attempts": []}, headers=headers)).status_code == 200
    back = await client.post(url, json={"attempts": []}, headers=MINE)
    # One without an identity guards nothing, as before.
    assert back.status_code == (409 if headers is FOREIGN else 200)


async def test_runners_without_an_identity_work_as_before_until_one_gives_its_own(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    runner_id, _ = await launch(client, stage)
    assert await register(client) == runner_id
    assert (await take(client, MINE)).status_code == 200
    assert (await take(client, MINE)).status_code == 200
    assert (await take(client, KEY)).status_code == 409


async def test_only_a_hash_of_the_identity_is_stored(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    await take(client, MINE)
    (runner,) = stage.rows(Runner)
    token = MINE["Hillclimb-Runner-Identity"]
    assert runner.identity_hash == hashlib.sha256(token.encode()).hexdigest()


async def test_an_identity_that_could_be_guessed_is_refused(client: httpx.AsyncClient) -> None:
    short = KEY | {"Hillclimb-Runner-Identity": "box"}
    assert (await take(client, short)).status_code == 422
