"""The whole application over ASGI, on a real database, with a bell that remembers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.queue import BrokerUnreachable
from api.settings import Settings
from api.tables import ApiKey
from api.tables.access.identity import Scope, ensure_key
from api.tables.database import Database
from tests.api.fixtures.application import make_application
from tests.api.fixtures.migrated import OTHER_PROJECT

KEY = "hc_" + "k" * 61
RUNNER_TOKEN = "hcr_" + "r" * 60
READ_ONLY = "hc_readonly_" + "r" * 52
STRANGER = "hc_stranger_" + "s" * 52


@dataclass(slots=True)
class RememberingBell:
    """Stands for the broker's far end."""

    rung: list[str] = field(default_factory=list)
    is_away: bool = False

    def enqueue(self, run_ids: Iterable[str]) -> None:
        self.rung.extend(run_ids)

    def check(self) -> None:
        if self.is_away:
            raise BrokerUnreachable("away")


@pytest.fixture
def task_queue() -> RememberingBell:
    return RememberingBell()


@pytest.fixture
def settings(database_url: str, tmp_path: Path) -> Settings:
    return Settings.model_validate(
        {
            "database_url": database_url,
            "redis_url": "redis://127.0.0.1:1/0",
            "blobs_url": str(tmp_path / "blobs"),
            "public_url": "http://service",
            "secret_key": "for tests only",
            "bootstrap_key": KEY,
            "runner_token": RUNNER_TOKEN,
            "clouds": "skypilot",
            "node_api_url": "https://service",
            "node_blobs_url": "s3://blobs/nodes",
            "run_sources": "file:///data s3://models",
        }
    )


@pytest.fixture
async def app(
    settings: Settings, task_queue: RememberingBell, database: Database
) -> AsyncIterator[FastAPI]:
    made = make_application(settings, task_queue, database)
    async with made.router.lifespan_context(made):
        yield made


@pytest.fixture
async def client(app: FastAPI, database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """Calls with the key that the application made valid at start."""
    with database.transaction() as session:
        ensure_key(session, READ_ONLY, name="reader", scopes=[Scope.RUNS_READ])
        ensure_key(session, STRANGER, name="stranger", scopes=[Scope.RUNS_READ, Scope.RUNS_WRITE])
        session.flush()
        stranger = session.query(ApiKey).filter_by(name="stranger").one()
        stranger.project_id = OTHER_PROJECT
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app),
        base_url="http://service",
        headers={"Authorization": f"Bearer {KEY}"},
    ) as made:
        yield made


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}
