"""A migrated database with one project, copied per test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config

from api.database import Database
from api.tables import Project

ROOT = Path(__file__).parents[2]
PROJECT = "prj_mine"
OTHER_PROJECT = "prj_other"


def alembic_config(url: str) -> Config:
    configuration = Config(str(ROOT / "alembic.ini"))
    configuration.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return configuration


def prepare(url: str) -> None:
    command.upgrade(alembic_config(url), "head")
    database = Database(url)
    with database.transaction() as session:
        session.add_all([Project(id=name, name=name) for name in (PROJECT, OTHER_PROJECT)])
    database.close()


@pytest.fixture
def database_url(make_database: Callable[..., str]) -> str:
    return make_database(template="api", prepare=prepare)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()
