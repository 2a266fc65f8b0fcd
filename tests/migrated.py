"""The session's one migrated database: emptied for each test that asks for it.

A test whose processes outlive it takes a database of its own (`make_database`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from api.database import Database
from api.tables import Base

ROOT = Path(__file__).parents[1]
VACUUM_EVERY = 100
"""Nothing else takes away the rows that were deleted: autovacuum is off (`tests.postgres`)."""


def alembic_config(url: str) -> Config:
    configuration = Config(str(ROOT / "alembic.ini"))
    configuration.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
    return configuration


def migrate(url: str) -> None:
    command.upgrade(alembic_config(url), "head")


@dataclass(slots=True)
class Migrated:
    """A database with every table; one pool for all tests spares each its connections."""

    url: str
    database: Database
    admin: psycopg.Connection
    num_emptied: int = 0

    def empty(self) -> None:
        """Delete every row and count from 1 again: 2 ms, a copy of the database takes 70."""
        self.admin.execute(EMPTY)
        self.num_emptied += 1
        if self.num_emptied % VACUUM_EVERY == 0:
            self.admin.execute("VACUUM")


def _emptying() -> str:
    tables = Base.metadata.sorted_tables
    counted = [
        f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column.name}'), 1, false)"
        for table in tables
        for column in table.columns
        if column.identity is not None
    ]
    deleted = [f"DELETE FROM {table.name}" for table in reversed(tables)]
    return ";".join(["BEGIN", *deleted, *counted, "COMMIT"])


EMPTY = _emptying()


@pytest.fixture(scope="session")
def migrated(make_database: Callable[..., str]) -> Iterator[Migrated]:
    url = make_database()
    migrate(url)
    database = Database(url)
    # A test that left a transaction open fails the next one, instead of holding it up for ever.
    options = "-c lock_timeout=10s"
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True, options=options) as admin:
        yield Migrated(url, database, admin)
    database.close()


@pytest.fixture
def emptied(migrated: Migrated) -> Migrated:
    """The migrated database as new, whatever the tests before have left in it."""
    migrated.empty()
    return migrated
