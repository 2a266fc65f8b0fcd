"""A migrated database and the worker's parts around it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.database import Database
from api.notices.deliver import Delivery
from api.tables import Project
from tests.migrated import Migrated
from tests.worker.presence import Api
from tests.worker.scene import PROJECT, Scene
from trainer.stores.disk import DiskStore
from worker.parts import Parts


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
def scene(database: Database, tmp_path: Path) -> Scene:
    delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
    store = DiskStore(tmp_path / "blobs")
    return Scene(Parts(database=database, store=store, owner="worker-1", delivery=delivery))
