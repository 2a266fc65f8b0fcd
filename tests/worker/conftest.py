"""A migrated database and the worker's context around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.notices.deliver import Delivery
from api.tables import Project
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from tests.fixtures.migrated import Migrated
from tests.worker.api_presence import Api
from tests.worker.run_simulation import PROJECT, RunSimulation
from worker.context import WorkerContext


@pytest.fixture
def database_url(emptied: Migrated) -> str:
    return emptied.url


@pytest.fixture
def database(emptied: Migrated) -> Database:
    with emptied.database.transaction() as session:
        session.add(Project(id=PROJECT, name="worker tests"))
    return emptied.database


@pytest.fixture
def api(database_url: str) -> Iterator[Api]:
    """An API process that is there until the test ends, or sends it away."""
    api = Api(database_url)
    api.comes()
    yield api
    api.goes()


@pytest.fixture
def sim(database: Database, tmp_path: Path) -> RunSimulation:
    delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
    store = DiskStore(tmp_path / "blobs")
    return RunSimulation(
        WorkerContext(database=database, store=store, owner="worker-1", delivery=delivery)
    )
