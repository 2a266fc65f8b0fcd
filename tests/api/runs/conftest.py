"""Fixtures of the runs domain."""

import pytest

from api.database import Database
from tests.api.migrated import database, database_url
from tests.api.runs.stage import Stage

__all__ = ["database", "database_url", "stage"]


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)
