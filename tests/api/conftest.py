"""Fixtures that every test of the service may use."""

import pytest

from api.tables.database import Database
from tests.api.fixtures.migrated import database, database_url
from tests.api.fixtures.stage import Stage

__all__ = ["database", "database_url"]


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)
