"""A value that the database can never store is the caller's fault; only its absence is a 503."""

import random
import string
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from api.http.handlers import install
from api.http.middleware import RequestEdge
from api.tables.database import Database
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import bearer
from tests.api.http.routes.test_runners import launch, push
from tests.fixtures import factories as make

LONG = "".join(random.Random(2).choices(string.ascii_letters, k=9_000))
RAISE = "DO $$ BEGIN RAISE EXCEPTION 'this' USING ERRCODE = '{}'; END $$"


@pytest.fixture
async def raising(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """An application whose only route makes PostgreSQL raise the SQLSTATE that is named."""
    app = FastAPI()
    install(app)
    app.add_middleware(RequestEdge, max_upload_bytes=1000)

    @app.get("/{state}")
    def fail(state: str) -> None:
        with database.transaction() as session:
            session.execute(text(RAISE.format(state)))

    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as made:
        yield made


@pytest.mark.parametrize(
    ("state", "status", "code"),
    [
        ("54000", 400, "malformed"),
        ("54001", 400, "malformed"),
        ("22003", 400, "malformed"),
        ("40P01", 503, "unavailable"),
        ("53100", 503, "unavailable"),
        ("55P03", 503, "unavailable"),
        ("57014", 503, "unavailable"),
        ("57P01", 503, "unavailable"),
        ("HV000", 500, "internal"),
        ("F0000", 500, "internal"),
    ],
)
async def test_only_what_passes_is_an_outage(
    raising: httpx.AsyncClient, state: str, status: int, code: str
) -> None:
    answer = await raising.get(f"/{state}")
    assert (answer.status_code, answer.json()["code"]) == (status, code)


async def test_a_trainer_gets_the_number_of_what_is_refused_too(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    _, plan = await launch(client, stage)
    events = (make.started(1), make.step(2, 1, metrics={LONG: 1.0}), make.phase(3))
    answer = await push(client, plan.attempt_token, *events)
    assert (answer.status_code, answer.json()["last_trainer_seq"]) == (200, 3)
    stored = await client.get(f"/v1/runs/{plan.run_id}/events", params={"types": "event.refused"})
    (event,) = stored.json()["data"]
    assert event["data"]["refused_type"] == "step.completed"


async def test_events_of_a_newer_schema_are_not_invalid(
    client: httpx.AsyncClient, stage: Stage
) -> None:
    """The sender gives up what is invalid; this it repeats until the service is up to date."""
    _, plan = await launch(client, stage)
    newer = {**make.phase(1).model_dump(mode="json"), "schema_version": 2, "new_field": 1}
    headers = bearer(plan.attempt_token)
    answer = await client.post("/v1/ingest", json={"events": [newer]}, headers=headers)
    assert answer.json()["code"] == "unsupported_schema"


async def test_a_stored_path_that_leaves_its_folder_is_no_file(
    client: httpx.AsyncClient, stage: Stage, database: Database
) -> None:
    _, plan = await launch(client, stage)
    row = make.outcome("a", trajectory="../../../outside.jsonl.gz")
    await push(client, plan.attempt_token, make.started(1), make.step(2, 1, row))
    answer = await client.get(f"/v1/runs/{plan.run_id}/trajectories/a")
    assert (answer.status_code, answer.json()["code"]) == (404, "artifact_not_found")
