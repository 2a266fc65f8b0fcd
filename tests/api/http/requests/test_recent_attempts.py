"""Tokens of attempts: looked up by the gate once in a while, and by every route each time."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import text
from sqlalchemy.orm import Session

from api.http.requests.limits import recent_attempts
from api.http.requests.limits.recent_attempts import RECENT_S, RecentAttempts
from api.http.requests.permissions import PERMISSIONS, Access
from api.tables.database import Database
from hillclimb.protocol.events import IngestBatch
from tests.api.fixtures.stage import Stage
from tests.api.http.conftest import bearer
from tests.fixtures import factories as make

BODIES = {
    "POST /v1/attempts/end": '{"reason": "completed", "message": ""}',
    "POST /v1/attempts/heartbeat": "{}",
    "POST /v1/ingest": IngestBatch(events=(make.phase(2),)).model_dump_json(),
}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Lookups(Database):
    """A database that counts lookups outside of transactions."""

    number = 0

    def lookup(self) -> AbstractContextManager[Session]:
        self.number += 1
        return super().lookup()


@pytest.fixture
def clock(app: FastAPI) -> Clock:
    made = Clock()
    recent = RecentAttempts(clock=made)
    app.state.entrance = replace(app.state.entrance, recent_attempts=recent)
    return made


async def send(client: httpx.AsyncClient, token: str, route: str = "POST /v1/ingest") -> int:
    headers = {**bearer(token), "Content-Type": "application/json"}
    answer = await client.request(*route.split(), content=BODIES[route], headers=headers)
    return answer.status_code


async def test_the_gate_asks_for_a_token_once_in_a_while(
    client: httpx.AsyncClient, app: FastAPI, stage: Stage, database_url: str, clock: Clock
) -> None:
    database = Lookups(database_url)
    app.state.entrance = replace(app.state.entrance, database=database)
    _, _, plan = stage.running()
    for seconds, expected in ((0, 1), (RECENT_S - 1, 1), (1, 2), (RECENT_S - 1, 2)):
        clock.now += seconds
        assert await send(client, plan.attempt_token) == 200
        assert database.number == expected
    assert await send(client, plan.attempt_token + "f") == 401
    database.close()


@pytest.mark.parametrize("route", [r for r, who in PERMISSIONS.items() if who is Access.ATTEMPT])
async def test_each_route_refuses_a_recent_token_that_no_attempt_has_any_more(
    client: httpx.AsyncClient, stage: Stage, database: Database, route: str, clock: Clock
) -> None:
    _, _, plan = stage.running()
    assert await send(client, plan.attempt_token, "POST /v1/attempts/heartbeat") == 200
    with database.transaction() as session:
        session.execute(text("UPDATE attempts SET token_hash = 'another'"))
    assert await send(client, plan.attempt_token, route) == 401
    clock.now += RECENT_S
    assert await send(client, plan.attempt_token, route) == 401


def test_it_remembers_so_many_and_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_attempts, "MAX_RECENT", 2)
    recent = RecentAttempts(clock=Clock())
    for name in ("a", "b", "a", "c"):
        recent.note(name, f"att_{name}")
    assert [recent.get(name) for name in "abc"] == ["att_a", None, "att_c"]
