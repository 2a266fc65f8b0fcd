"""A migrated database with two projects: one for the whole session, emptied before each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import insert

from api.database import Database
from api.tables import Base, Project

ROOT = Path(__file__).parents[2]
PROJECT = "prj_mine"
OTHER_PROJECT = "prj_other"


def alembic_config(url: str) -> Config:
    configuration = Config(str(ROOT / "alembic.ini"))
    configuration.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return configuration


def empty(database: Database) -> None:
    """Delete every row (a few ms; a fresh copy of the database costs 300) and add the projects."""
    with database.transaction() as session:
        for table in reversed(Base.metadata.sorted_tables):
            session.execute(table.delete())
        rows = [{"id": name, "name": name} for name in (PROJECT, OTHER_PROJECT)]
        session.execute(insert(Project), rows)


@pytest.fixture(scope="session")
def migrated(make_database: Callable[..., str]) -> Iterator[tuple[str, Database]]:
    url = make_database()
    command.upgrade(alembic_config(url), "head")
    database = Database(url)
    yield url, database
    database.close()


@pytest.fixture
def database(migrated: tuple[str, Database]) -> Database:
    empty(migrated[1])
    return migrated[1]


@pytest.fixture
def database_url(migrated: tuple[str, Database], database: Database) -> str:
    """The URL of `database`."""
    return migrated[0]
