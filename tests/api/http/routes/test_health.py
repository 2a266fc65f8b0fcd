"""Liveness and readiness, also while requests hold every thread and every connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager

import anyio.to_thread
import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text

from api.http.measurement.readiness import DEADLINE_S
from api.settings import Settings
from api.tables import Run
from api.tables.database import LARGEST_POOL, Database
from tests.api.fixtures.application import make_application
from tests.api.http.conftest import RememberingBell
from tests.fixtures.factories import spec_body

NUM_STUCK = 50
"""More requests than the application has threads."""


@pytest.fixture
async def app(settings: Settings, task_queue: RememberingBell) -> AsyncIterator[FastAPI]:
    """The application with a pool of its own: requests take all of its connections."""
    made = make_application(settings, task_queue)
    async with made.router.lifespan_context(made):
        yield made


async def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@asynccontextmanager
async def every_thread_taken(client: httpx.AsyncClient, database: Database) -> AsyncIterator[None]:
    """Requests that wait for the lock of one row, until the block ends."""
    run_id = (await client.post("/v1/runs", json=spec_body())).json()["id"]
    with database.transaction() as session:
        session.get_one(Run, run_id, with_for_update=True)
        path = f"/v1/runs/{run_id}/cancel"
        stuck = [asyncio.create_task(client.post(path)) for _ in range(NUM_STUCK)]
        threads = anyio.to_thread.current_default_thread_limiter()
        blocked = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        await until(lambda: session.scalar(blocked) == threads.total_tokens)
        yield
    assert {each.status_code for each in await asyncio.gather(*stuck)} == {200}


async def test_health_answers_at_once_and_ready_within_its_deadline_without_a_free_thread(
    client: httpx.AsyncClient, database: Database
) -> None:
    async with every_thread_taken(client, database):
        began = time.monotonic()
        alive = await client.get("/v1/health")
        assert time.monotonic() - began < 5
        ready = await client.get("/v1/health/ready")
        assert time.monotonic() - began < DEADLINE_S + 10
    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()["code"]) == (503, "unavailable")
    assert f"None of the API's 40 threads became free within {DEADLINE_S:g} s" in ready.text
    assert ready.headers["retry-after"] == "5"
    assert (await client.get("/v1/health/ready")).status_code == 200


async def test_ready_tells_that_the_pool_is_empty_from_a_database_that_does_not_respond(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    database = app.state.services.database
    size = LARGEST_POOL
    with ExitStack() as held:
        for _ in range(size):
            session = held.enter_context(database.transaction())
            await asyncio.to_thread(session.execute, text("SELECT 1"))
        ready = await client.get("/v1/health/ready")
    assert ready.status_code == 503
    assert f"None of the API's {size} database connections" in ready.json()["detail"]
    assert "does not respond" not in ready.text
    assert (await client.get("/v1/health/ready")).status_code == 200


async def test_ready_names_a_broker_that_is_away(
    client: httpx.AsyncClient, task_queue: RememberingBell
) -> None:
    task_queue.is_away = True
    ready = await client.get("/v1/health/ready")
    assert (ready.status_code, ready.json()["detail"]) == (503, "The broker does not respond.")


async def test_ready_warns_of_pools_that_add_up_to_more_than_postgres_allows(
    client: httpx.AsyncClient, app: FastAPI
) -> None:
    assert (await client.get("/v1/health/ready")).json()["warnings"] == []
    other = Database(app.state.services.settings.database_url, pool=900)
    with other.transaction() as session:
        session.execute(text("SELECT 1"))
        (warning,) = (await client.get("/v1/health/ready")).json()["warnings"]
    other.close()
    assert "Lower HILLCLIMB_DB_POOL" in warning
