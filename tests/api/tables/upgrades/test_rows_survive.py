"""A database of each released schema, with rows in every table, is upgraded to today's."""

from __future__ import annotations

import psycopg
from alembic import command
from sqlalchemy import NullPool, create_engine, func, select
from sqlalchemy.orm import Session, undefer

from api.tables import Base
from api.tables.training.deleted import INCLUDES_DELETING
from tests.api.tables.upgrades.conftest import REVISIONS, Climbed
from tests.api.tables.upgrades.rows import Key, Rows, Schema
from tests.fixtures.migrated import alembic_config

OF_THE_FIRST = 25
"""Tables of the first revision."""
REWRITTEN = {("slack_threads", "channel"): "1017", ("slack_threads", "channel_id"): "1017"}
"""Columns of which a migration changes values that are there, with its revision."""


def rows_of(url: str) -> Rows:
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        return Schema.of(connection).rows(connection)


def test_each_revision_has_rows_in_every_table_that_it_knows(climbed: Climbed) -> None:
    assert {name for name, _ in climbed.inserted} == set(Base.metadata.tables) - {
        "schema_revisions"
    }
    for revision in REVISIONS:
        tables = {name for (name, _), at in climbed.at.items() if at == revision}
        assert len(tables) >= OF_THE_FIRST, revision


def test_every_row_is_there_with_the_values_that_it_had(climbed: Climbed) -> None:
    now = rows_of(climbed.url)
    assert now.keys() == climbed.inserted.keys()
    assert list(changed(climbed, now)) == []


def changed(climbed: Climbed, now: Rows) -> list[tuple[Key, str]]:
    """Return the values that are others than when their row was inserted, without the known."""
    return [
        (key, column)
        for key, row in climbed.inserted.items()
        for column, value in row.items()
        if now[key].get(column) != value
        and not climbed.at[key] < REWRITTEN.get((key[0], column), "")
    ]


def test_the_code_of_today_reads_every_row(climbed: Climbed) -> None:
    """Also where a column is newer than the row: what it has by default is of its type."""
    engine = create_engine(climbed.url, poolclass=NullPool)
    with Session(engine) as session:
        for mapper in Base.registry.mappers:
            every = select(mapper.class_).options(undefer("*"))
            rows = session.scalars(every.execution_options(**{INCLUDES_DELETING: True})).all()
            assert len(rows) == session.scalar(select(func.count()).select_from(mapper.local_table))


def test_no_migration_shuts_the_code_of_the_one_before_out(climbed: Climbed) -> None:
    """Each step by itself, where `tests/api/tables/test_revisions.py` compares the two ends."""
    assert {at: why for at, why in climbed.shut_out.items() if why} == {}


def test_a_downgrade_leaves_the_rows_of_the_earlier_schema(climbed: Climbed, copied: str) -> None:
    """It drops what later migrations added, as docs/deploy.md says, and the way up is open."""
    configuration = alembic_config(copied)
    command.downgrade(configuration, REVISIONS[0])
    left = rows_of(copied)
    first = {key: row for key, row in climbed.inserted.items() if climbed.at[key] == REVISIONS[0]}
    assert {key: left[key] for key in first} == first
    command.upgrade(configuration, "head")
    assert first.keys() <= rows_of(copied).keys()
