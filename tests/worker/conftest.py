"""A migrated database and the worker's parts around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

from api.database import Database
from api.notices.deliver import Delivery
from api.tables import Project
from tests.worker.scene import PROJECT, Scene
from trainer.stores.disk import DiskStore
from worker.parts import Parts

ROOT = Path(__file__).parents[2]


def migrate(url: str) -> None:
    configuration = Config(str(ROOT / "alembic.ini"))
    configuration.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    command.upgrade(configuration, "head")


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    return make_database(template="worker", prepare=migrate)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    with opened.transaction() as session:
        session.add(Project(id=PROJECT, name="worker tests"))
    yield opened
    opened.close()


@pytest.fixture
def scene(database: Database, tmp_path: Path) -> Scene:
    delivery = Delivery(database=database, slack=None, public_url="http://127.0.0.1:1")
    store = DiskStore(tmp_path / "blobs")
    return Scene(Parts(database=database, store=store, owner="worker-1", delivery=delivery))
