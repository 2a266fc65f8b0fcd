"""Secrets over HTTP: stored, never returned, and handed to the attempt that names them alone."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select

from api.runs.journal import utc_now
from api.runs.store import lock_run
from api.scheduling.advance import advance
from api.settings import Settings
from api.tables import ProjectSecret, Run, RunEvent
from api.tables.access.identity import DEFAULT_PROJECT as PROJECT
from api.tables.access.secrets.keyring import Keyring
from api.tables.database import Database
from hillclimb.protocol.launch import NodePlan
from tests.api.clusters.renting import rent
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import READ_ONLY, RUNNER_TOKEN, STRANGER, bearer
from tests.fixtures.factories import spec_body

VALUE = "the-fleet-key"
NAMED = {"FLEET_API_KEY": "fleet-prod"}
BOX = {"name": "box", "hostname": "box", "slots": 1}


async def put(
    client: httpx.AsyncClient, name: str = "fleet-prod", value: str = VALUE, **options: Any
) -> httpx.Response:
    return await client.put(f"/v1/secrets/{name}", json={"value": value}, **options)


async def submit(client: httpx.AsyncClient, **sections: Any) -> httpx.Response:
    return await client.post("/v1/runs", json=spec_body(secrets=NAMED, **sections))


async def claim(client: httpx.AsyncClient, database: Database, run_id: str) -> httpx.Response:
    runner = await client.post("/v1/runners", json=BOX, headers=bearer(RUNNER_TOKEN))
    with database.transaction() as session:
        advance(session, lock_run(session, run_id), now=utc_now())
    path = f"/v1/runners/{runner.json()['runner_id']}/claim"
    return await client.post(path, headers=bearer(RUNNER_TOKEN))


async def test_a_secret_is_listed_without_its_value(
    client: httpx.AsyncClient, database: Database
) -> None:
    first, second = await put(client), await put(client, value="another-fleet-key")
    assert (first.status_code, first.json()["version"]) == (200, 1)
    assert (second.json()["version"], second.json()["used_at"]) == (2, None)
    page = await client.get("/v1/secrets", headers=bearer(READ_ONLY))
    assert [each["name"] for each in page.json()["data"]] == ["fleet-prod"]
    for answer in (first, second, page):
        assert "fleet-key" not in answer.text
    with database.transaction() as session:
        row = session.scalars(select(ProjectSecret)).one()
    assert b"fleet-key" not in row.ciphertext


async def test_only_an_admin_sets_and_deletes(client: httpx.AsyncClient) -> None:
    await put(client)
    for key in (READ_ONLY, STRANGER, RUNNER_TOKEN):
        assert (await put(client, headers=bearer(key))).status_code == 403
        path = "/v1/secrets/fleet-prod"
        assert (await client.delete(path, headers=bearer(key))).status_code == 403
        path = "/v1/secrets/reencrypt"
        assert (await client.post(path, headers=bearer(key))).status_code == 403
    assert (await client.get("/v1/secrets", headers=bearer(RUNNER_TOKEN))).status_code == 403


async def test_another_project_neither_sees_nor_names_a_secret(client: httpx.AsyncClient) -> None:
    await put(client)
    page = await client.get("/v1/secrets", headers=bearer(STRANGER))
    assert page.json()["data"] == []
    body = spec_body(secrets=NAMED)
    refused = await client.post("/v1/runs", json=body, headers=bearer(STRANGER))
    assert (refused.status_code, refused.json()["code"]) == (422, "secret_missing")


@pytest.mark.parametrize(
    ("value", "code", "reason"),
    [
        ("tiny!", "secret_rejected", "fewer than 6 characters"),
        ("x" * 20_000, "invalid", "at most 16384 items"),
        ("ä" * 16_000, "secret_rejected", "more than 16384 bytes"),
        ("zero\0character", "malformed", "U+0000"),
    ],
)
async def test_a_value_that_cannot_be_stored_is_refused_without_being_repeated(
    client: httpx.AsyncClient, value: str, code: str, reason: str
) -> None:
    refused = await put(client, value=value)
    assert refused.json()["code"] == code
    assert reason in refused.json()["detail"]
    assert value not in refused.text
    assert (await client.get("/v1/secrets")).json()["data"] == []


@pytest.mark.parametrize("name", ["a b", "-x", "x" * 65])
async def test_a_name_that_no_spec_can_name_is_refused(
    client: httpx.AsyncClient, name: str
) -> None:
    assert (await put(client, name)).status_code in (404, 422)


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/runs/plan"])
async def test_a_missing_secret_is_refused_with_the_command(
    client: httpx.AsyncClient, path: str
) -> None:
    refused = await client.post(path, json=spec_body(secrets=NAMED))
    assert (refused.status_code, refused.json()["code"]) == (422, "secret_missing")
    assert "`hillclimb secrets set fleet-prod`" in refused.json()["detail"]
    await put(client)
    assert (await client.post(path, json=spec_body(secrets=NAMED))).is_success


@pytest.mark.parametrize(
    "variable", ["PATH", "LD_PRELOAD", "PYTHON_KEY", "HILLCLIMB_ATTEMPT_TOKEN", "RAY_AUTH_TOKEN"]
)
async def test_a_secret_sets_no_variable_that_steers_the_trainer(
    client: httpx.AsyncClient, variable: str
) -> None:
    await put(client)
    refused = await client.post("/v1/runs", json=spec_body(secrets={variable: "fleet-prod"}))
    assert refused.status_code == 422
    assert f"{variable} is no variable for a secret" in refused.json()["detail"]


@pytest.mark.parametrize(
    "variable",
    [
        *("FLEET_API_KEY", "WANDB_API_KEY", "TINKER_API_KEY", "LAMBDA_API_KEY", "RUNPOD_API_KEY"),
        *("VAST_API_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
        *("HF_TOKEN", "RUN_SECRET_SHOP"),
    ],
)
async def test_the_variables_of_the_old_workflows_can_be_set(
    client: httpx.AsyncClient, variable: str
) -> None:
    await put(client)
    taken = await client.post("/v1/runs", json=spec_body(secrets={variable: "fleet-prod"}))
    assert taken.status_code == 201, taken.text


async def test_a_runner_receives_the_secrets_that_the_spec_names_with_its_claim(
    client: httpx.AsyncClient, database: Database
) -> None:
    await put(client)
    await put(client, "unnamed", "never-handed-out")
    run = (await submit(client)).json()
    answer = await claim(client, database, run["id"])
    assert answer.json()["secrets"] == {"FLEET_API_KEY": VALUE}
    assert "never-handed-out" not in answer.text
    page = (await client.get("/v1/secrets")).json()["data"]
    used = {each["name"]: each["used_at"] for each in page}
    assert used["fleet-prod"] is not None
    assert used["unnamed"] is None
    for path in ("", "/events", "/logs"):
        assert VALUE not in (await client.get(f"/v1/runs/{run['id']}{path}")).text
    with database.transaction() as session:
        stored = [str(event.data) for event in session.scalars(select(RunEvent))]
        stored += [str(each.spec) for each in session.scalars(select(Run))]
    assert VALUE not in "".join(stored)


async def test_a_run_without_secrets_receives_none(
    client: httpx.AsyncClient, database: Database
) -> None:
    await put(client)
    run = (await client.post("/v1/runs", json=spec_body())).json()
    assert (await claim(client, database, run["id"])).json()["secrets"] == {}


async def test_nodes_receive_the_secrets_of_the_spec_before_the_operators(
    client: httpx.AsyncClient, database: Database, app: FastAPI
) -> None:
    operators = {"FLEET_API_KEY": "the-operators-key", "WANDB_API_KEY": "the-operators-other"}
    operators |= {"AWS_SECRET_ACCESS_KEY": "of-the-store", "RUN_SECRET_SHOP": "of-a-shop"}
    app.state.services = dataclasses.replace(app.state.services, node_secrets=operators)
    await put(client)
    rented = rent(database, PROJECT, now=utc_now(), secrets=NAMED)
    body = rented.code("for tests only").model_dump()
    answer = await client.post("/v1/attempts/claim", json=body, headers={"Authorization": ""})
    expected = {"FLEET_API_KEY": VALUE, "AWS_SECRET_ACCESS_KEY": "of-the-store"}
    assert NodePlan.model_validate(answer.json()).secrets == expected


async def test_a_secret_of_a_live_run_is_kept_until_the_run_has_ended(
    client: httpx.AsyncClient,
) -> None:
    await put(client)
    run = (await submit(client)).json()
    refused = await client.delete("/v1/secrets/fleet-prod")
    assert (refused.status_code, refused.json()["code"]) == (409, "secret_in_use")
    assert run["id"] in refused.json()["detail"]
    await client.post(f"/v1/runs/{run['id']}/cancel")
    assert (await client.delete("/v1/secrets/fleet-prod")).json()["deleted"] is True
    gone = await client.delete("/v1/secrets/fleet-prod")
    assert (gone.status_code, gone.json()["code"]) == (404, "secret_not_found")


async def test_an_attempt_whose_secret_does_not_decrypt_ends_and_blocks_no_other(
    client: httpx.AsyncClient, database: Database, app: FastAPI
) -> None:
    await put(client)
    run = (await submit(client)).json()
    others = Keyring({"new": b"k" * 32})
    app.state.services = dataclasses.replace(app.state.services, keyring=others)
    assert (await claim(client, database, run["id"])).status_code == 204
    reason = (await client.get(f"/v1/runs/{run['id']}")).json()["end_reason"]
    assert "add it to HILLCLIMB_MASTER_KEYS" in reason["message"]
    refused = await client.post("/v1/secrets/reencrypt")
    assert (refused.status_code, refused.json()["code"]) == (503, "secret_unreadable")


async def test_reencryption_makes_an_old_master_key_superfluous(
    client: httpx.AsyncClient, database: Database, app: FastAPI, settings: Settings, stage: Stage
) -> None:
    await put(client)
    new = "new:" + base64.b64encode(b"n" * 32).decode()
    rotated = Keyring.of(Settings.model_validate({**dict(settings), "master_keys": new}))
    app.state.services = dataclasses.replace(app.state.services, keyring=rotated)
    for number in (1, 0):
        answer = await client.post("/v1/secrets/reencrypt")
        assert answer.json() == {"key_id": "new", "num_reencrypted": number}
    alone = Keyring({"new": b"n" * 32})
    app.state.services = dataclasses.replace(app.state.services, keyring=alone)
    run = (await submit(client)).json()
    assert (await claim(client, database, run["id"])).json()["secrets"] == {"FLEET_API_KEY": VALUE}


SHOP = {
    "provider": "openenv",
    "openenv": {
        "booking": {"url": "https://shop.example", "headers": {"X-Key": "RUN_SECRET_SHOP"}}
    },
}
TEACHER = {
    "teacher": {
        "base_url": "https://shop.example/v1",
        "model": "m",
        "api_key_env": "RUN_SECRET_SHOP",
    }
}
SENDERS: list[dict[str, Any]] = [
    {"environment": SHOP},
    {"kind": "validate", "validation": TEACHER},
]


async def sends(client: httpx.AsyncClient, **sections: Any) -> httpx.Response:
    body = spec_body(secrets={"RUN_SECRET_SHOP": "fleet-prod"}, experimental=True, **sections)
    return await client.post("/v1/runs", json=body)


@pytest.mark.parametrize("sections", SENDERS)
@pytest.mark.parametrize("hosts", [None, [], ["api.example"], ["*.shop.example"]])
async def test_a_secret_is_sent_to_no_host_that_it_is_not_for(
    client: httpx.AsyncClient, sections: dict[str, Any], hosts: list[str] | None
) -> None:
    body = {"value": VALUE} | ({} if hosts is None else {"hosts": hosts})
    assert (await client.put("/v1/secrets/fleet-prod", json=body)).status_code == 200
    answer = await sends(client, **sections)
    assert (answer.status_code, answer.json()["code"]) == (422, "secret_not_for_host")
    assert "shop.example" in answer.json()["detail"]
    assert "hillclimb secrets set fleet-prod --host HOST" in answer.json()["detail"]


@pytest.mark.parametrize("sections", SENDERS)
@pytest.mark.parametrize(
    "hosts", [["shop.example"], ["*.example"], ["other.example", "shop.example"]]
)
async def test_a_secret_is_sent_to_its_hosts(
    client: httpx.AsyncClient, database: Database, sections: dict[str, Any], hosts: list[str]
) -> None:
    body = {"value": VALUE, "hosts": hosts}
    assert (await client.put("/v1/secrets/fleet-prod", json=body)).json()["hosts"] == sorted(hosts)
    run = await sends(client, **sections)
    assert run.status_code == 201, run.text
    claimed = await claim(client, database, run.json()["id"])
    assert claimed.json()["secrets"] == {"RUN_SECRET_SHOP": VALUE}


async def test_hosts_change_with_the_value_alone_and_hold_for_runs_that_wait(
    client: httpx.AsyncClient, database: Database
) -> None:
    body = {"value": VALUE, "hosts": ["shop.example"]}
    await client.put("/v1/secrets/fleet-prod", json=body)
    without = await client.put("/v1/secrets/fleet-prod", json={"hosts": ["evil.example"]})
    assert without.status_code == 422
    assert (await put(client)).json()["hosts"] == ["shop.example"]
    run = (await sends(client, environment=SHOP)).json()
    await client.put("/v1/secrets/fleet-prod", json=body | {"hosts": ["api.example"]})
    assert (await claim(client, database, run["id"])).status_code == 204
    failed = (await client.get(f"/v1/runs/{run['id']}")).json()
    assert "may be sent to api.example" in str(failed["attempts"][-1])


async def test_a_secret_for_hosts_is_no_key_of_a_platform(client: httpx.AsyncClient) -> None:
    body = {"value": VALUE, "hosts": ["shop.example"]}
    await client.put("/v1/secrets/fleet-prod", json=body)
    answer = await submit(client)
    assert (answer.status_code, answer.json()["code"]) == (422, "secret_not_for_host")
    fleet = {"provider": "fleet", "fleet": {"base_url": "https://evil.example"}}
    other = await submit(client, environment=fleet, experimental=True)
    assert other.json()["code"] == "secret_not_for_host"
    await client.put("/v1/secrets/fleet-prod", json=body | {"hosts": []})
    assert (await submit(client)).status_code == 201


@pytest.mark.parametrize("host", ["https://shop.example", "shop.example:443", "*", "a b", "A.b"])
async def test_a_host_is_a_name(client: httpx.AsyncClient, host: str) -> None:
    body = {"value": VALUE, "hosts": [host]}
    assert (await client.put("/v1/secrets/x", json=body)).status_code == 422
