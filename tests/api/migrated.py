"""The migrated database with two projects."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from api.database import Database
from api.tables import Project
from tests.migrated import Migrated

PROJECT = "prj_mine"
OTHER_PROJECT = "prj_other"


@pytest.fixture
def database(emptied: Migrated) -> Database:
    rows = [{"id": name, "name": name} for name in (PROJECT, OTHER_PROJECT)]
    with emptied.database.transaction() as session:
        session.execute(insert(Project), rows)
    return emptied.database


@pytest.fixture
def database_url(emptied: Migrated, database: Database) -> str:
    """The URL of `database`."""
    return emptied.url
