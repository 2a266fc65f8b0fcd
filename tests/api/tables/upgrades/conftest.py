"""The database that climbed from the first revision to the last, with rows of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.script import ScriptDirectory

from tests.api.tables.test_revisions import Columns, breaks
from tests.api.tables.upgrades.rows import Key, Rows, Schema
from tests.fixtures.migrated import alembic_config
from tests.fixtures.postgres import RunningPostgres

REVISIONS = [
    script.revision
    for script in ScriptDirectory.from_config(alembic_config("unused")).walk_revisions()
][::-1]
"""From the first to the newest."""
SPECS: Mapping[str, Any] = json.loads(
    (Path(__file__).parent / "specs.json").read_text(encoding="utf-8")
)
"""By revision, the spec of one run as the code that brought it stored it: every default written
out. A revision that is not listed has that of the one before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """A database at the newest revision, and what it was given on the way.

    At each revision it got two projects: one whose rows have only what they need, one whose rows
    have a value in every column. So every row goes through the migrations after its own.
    """

    url: str
    inserted: Rows = field(default_factory=dict)
    """Each row as it was at the revision at which it was inserted."""
    at: dict[Key, str] = field(default_factory=dict)
    """That revision."""
    shut_out: dict[str, list[str]] = field(default_factory=dict)
    """By revision, why code of the one before could not go on."""


def tags(revision: str) -> tuple[str, str]:
    """Return what is in every text of the two projects of a revision."""
    return f"{revision}-bare", f"{revision}-full"


def climb(url: str) -> Climbed:
    made = Climbed(url=url)
    configuration = alembic_config(url)
    before, spec = None, SPECS[REVISIONS[0]]
    for revision in REVISIONS:
        command.upgrade(configuration, revision)
        spec = SPECS.get(revision, spec)
        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            schema = Schema.of(connection)
            for tag in tags(revision):
                rows = schema.fill(connection, tag, spec, is_full=tag.endswith("full"))
                made.inserted.update(rows)
                made.at.update(dict.fromkeys(rows, revision))
        now = columns(schema)
        made.shut_out[revision] = breaks(before, now) if before is not None else []
        before = now
    return made


def columns(schema: Schema) -> Columns:
    """Return the columns as `breaks` compares them."""
    return {
        (column.table, column.name): {
            "name": column.name,
            "type": column.type,
            "nullable": column.is_nullable,
            "default": column.default or ("made" if column.is_filled_by_database else None),
        }
        for each in schema.tables.values()
        for column in each
    }


@pytest.fixture(scope="session")
def climbed(postgres: RunningPostgres) -> Climbed:
    """Nobody writes to it: `copied` is for that."""
    return climb(postgres.create_database())


@pytest.fixture
def copied(postgres: RunningPostgres, climbed: Climbed) -> str:
    """The URL of a copy."""
    return postgres.copy(climbed.url)
