"""A rolling restart: code of one version goes on while the database is migrated by the next."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.engine.interfaces import ReflectedColumn

from api.runs.status import RunStatus
from api.tables import Project
from api.tables.database import SCHEMA_REVISION, Database, Schema, revision_fault
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make
from tests.fixtures.migrated import ROOT, alembic_config

LAST_BEFORE = "1024"
"""The newest revision of the versions that required equality; all later migrations only add."""

NEXT = f'''
"""A migration of the next version."""
import sqlalchemy as sa
from alembic import op

revision = "9001"
down_revision = "{SCHEMA_REVISION}"


def upgrade():
    op.create_table("novelties", sa.Column("id", sa.String(), primary_key=True))
    op.add_column("runs", sa.Column("novelty_id", sa.String(), sa.ForeignKey("novelties.id")))
    op.add_column("attempts", sa.Column("novel", sa.Integer(), server_default="7", nullable=False))
    op.create_index("ix_attempts_novel", "attempts", ["novel"])
'''


def of_the_next_version(url: str, folder: Path, *, then: str = "") -> Config:
    """Alembic's configuration of a version with one migration more."""
    (folder / "9001_next.py").write_text(NEXT + then)
    configuration = alembic_config(url)
    locations = f"{ROOT / 'migrations' / 'versions'}:{folder}"
    configuration.set_main_option("version_locations", locations)
    return configuration


def test_a_run_in_flight_goes_on_over_a_migration_of_the_next_version(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    """This code is the old side: it started the run, and does not know the new columns."""
    url = make_database()
    command.upgrade(alembic_config(url), "head")
    database = Database(url)
    with database.transaction() as session:
        session.add(Project(id=PROJECT, name=PROJECT))
    stage = Stage(database)
    run_id, runner_id, plan = stage.running()
    command.upgrade(of_the_next_version(url, tmp_path), "head")
    schema = database.schema()
    assert (schema.revision, revision_fault(schema)) == ("9001", None)
    stage.push(plan, make.step(2, 1), make.ended(3))
    stage.end(runner_id, plan, last_seq=3)
    assert stage.status(run_id) == RunStatus.SUCCEEDED
    second = stage.submit()
    assert stage.launch(second, runner_id).attempt == 1
    # An old process that starts now migrates nothing, and is no reason to stop.
    command.upgrade(alembic_config(url), "head")
    assert database.schema() == schema
    database.close()


def test_a_schema_that_does_not_descend_from_this_codes_is_refused(
    make_database: Callable[..., str], tmp_path: Path
) -> None:
    url = make_database()
    configuration = alembic_config(url)
    database = Database(url)
    command.upgrade(configuration, LAST_BEFORE)
    assert "run migrations" in (revision_fault(database.schema()) or "")
    command.upgrade(configuration, "head")
    command.downgrade(configuration, "-1")
    assert "run migrations" in (revision_fault(database.schema()) or "")
    command.upgrade(configuration, "head")
    # A migration that takes something away says which versions cannot go on.
    shuts_out = "    op.execute(\"DELETE FROM schema_revisions WHERE revision <= '9000'\")\n"
    command.upgrade(of_the_next_version(url, tmp_path, then=shuts_out), "head")
    schema = database.schema()
    assert schema == Schema(revision="9001", earlier=frozenset({"9001"}))
    fault = revision_fault(schema)
    assert fault == f"The database is at revision 9001, not {SCHEMA_REVISION}: run migrations."
    with pytest.raises(CommandError, match="at revision 9001"):
        command.upgrade(configuration, "head")
    database.close()


Columns = dict[tuple[str, str], ReflectedColumn]


def columns(url: str) -> Columns:
    engine = create_engine(url)
    inspector = inspect(engine)
    reflected = {
        (table, column["name"]): column
        for table in inspector.get_table_names()
        for column in inspector.get_columns(table)
    }
    engine.dispose()
    return reflected


def breaks(before: Columns, after: Columns) -> list[str]:
    """Why code that knows `before` alone cannot write to `after`."""
    tables = {table for table, _ in before}
    gone = [f"{table}.{name} is gone" for table, name in before.keys() - after.keys()]
    for (table, name), column in after.items():
        was = before.get((table, name))
        if was is None:
            is_filled = column["nullable"] or column["default"] or column.get("computed")
            if table in tables and not is_filled:
                gone.append(f"{table}.{name} needs a value")
        elif str(was["type"]) != str(column["type"]):
            gone.append(f"{table}.{name} is another type")
        elif was["nullable"] and not column["nullable"]:
            gone.append(f"{table}.{name} may not be null any more")
    return gone


def test_migrations_since_then_only_add(make_database: Callable[..., str]) -> None:
    url = make_database()
    configuration = alembic_config(url)
    command.upgrade(configuration, LAST_BEFORE)
    before = columns(url)
    command.upgrade(configuration, "head")
    assert breaks(before, columns(url)) == []


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE a DROP COLUMN kept", "a.kept is gone"),
        ("ALTER TABLE a ADD COLUMN strict text NOT NULL", "a.strict needs a value"),
        ("ALTER TABLE a ALTER COLUMN kept TYPE text", "a.kept is another type"),
        ("ALTER TABLE a ALTER COLUMN kept SET NOT NULL", "a.kept may not be null any more"),
    ],
)
def test_a_migration_that_shuts_old_code_out_is_noticed(
    make_database: Callable[..., str], statement: str, reason: str
) -> None:
    url = make_database()
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE a (kept integer)"))
    before = columns(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()
    assert breaks(before, columns(url)) == [reason]
