"""Fixtures of the runs domain."""

import pytest

from api.database import Database
from tests.api.runs.stage import Stage


@pytest.fixture
def stage(database: Database) -> Stage:
    return Stage(database)
