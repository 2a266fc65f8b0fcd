"""Migrations make exactly the tables that the code declares."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from api.tables import Base, Project, Run
from api.tables.database import SCHEMA_REVISION, Database, Schema, revision_fault
from tests.api.fixtures.stage import Stage
from tests.fixtures.migrated import ROOT, Migrated, alembic_config


def test_the_code_is_written_for_the_newest_migration() -> None:
    script = ScriptDirectory.from_config(alembic_config("postgresql+psycopg://unused"))
    assert script.get_current_head() == SCHEMA_REVISION


def test_migrating_up_leaves_no_difference_to_the_tables(
    make_database: Callable[..., str],
) -> None:
    url = make_database()
    configuration = alembic_config(url)
    database = Database(url)
    assert database.schema().revision is None
    command.upgrade(configuration, "head")
    command.check(configuration)
    assert database.schema().revision == SCHEMA_REVISION
    command.downgrade(configuration, "base")
    command.upgrade(configuration, "head")
    database.close()


@pytest.mark.parametrize("revision", ["0001", "0012"])
def test_a_database_of_an_earlier_version_is_refused_with_the_way_to_export_it(
    make_database: Callable[..., str], revision: str
) -> None:
    url = make_database()
    database = Database(url)
    with database.transaction() as session:
        session.execute(text("CREATE TABLE alembic_version (version_num varchar(32))"))
        session.execute(text("INSERT INTO alembic_version VALUES (:at)"), {"at": revision})
    with pytest.raises(CommandError, match=rf"\(revision {revision}\).*hillclimb datasets pull"):
        command.upgrade(alembic_config(url), "head")
    assert database.schema().revision == revision
    assert "git checkout fbee508" in (revision_fault(database.schema()) or "")
    database.close()


def test_alembic_prints_the_refusal_as_one_sentence(make_database: Callable[..., str]) -> None:
    """The embedded stack shows the last lines of its one-shot service `migrate`."""
    url = make_database()
    database = Database(url)
    with database.transaction() as session:
        session.execute(text("CREATE TABLE alembic_version AS SELECT '0012' AS version_num"))
    database.close()
    result = subprocess.run(
        [sys.executable, "-m", "alembic", "-c", str(ROOT / "alembic.ini"), "upgrade", "head"],
        env={**os.environ, "DATABASE_URL": url},
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    (line,) = (result.stdout + result.stderr).strip().splitlines()
    assert line.startswith("FAILED: This database was written by Hillclimb before 2026-11-23")


def test_what_can_be_migrated_is_not_called_outdated() -> None:
    assert revision_fault(Schema(revision=SCHEMA_REVISION)) is None
    assert revision_fault(Schema(revision=None)) == (
        f"The database is at revision None, not {SCHEMA_REVISION}: run migrations."
    )


def test_every_top_level_table_belongs_to_a_project() -> None:
    tables = Base.metadata.tables
    below_a_run = {name for name, table in tables.items() if "run_id" in table.columns}
    below_a_run |= {name for name, table in tables.items() if "cluster_id" in table.columns}
    # The operator's own: which service this is, its people, what all projects learn of the
    # clouds and of what works here, which schema this is, and requests of Slack, whose senders may
    # have no project yet.
    operators = {"deployments", "orphaned_clusters", "people", "cloud_exclusions", "price_quotes"}
    operators |= {"slack_requests", "schema_revisions", "sweeps", "acceptances"}
    for name in set(tables) - below_a_run - operators - {"projects"}:
        assert not tables[name].columns["project_id"].nullable, name


def test_a_transaction_is_undone_by_an_error_and_kept_without_one(
    make_database: Callable[..., str],
) -> None:
    url = make_database()
    command.upgrade(alembic_config(url), "head")
    database = Database(url)

    def fail() -> None:
        with database.transaction() as session:
            session.add(Project(id="a", name="a"))
            session.flush()
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    with database.transaction() as session:
        session.add(Project(id="b", name="b"))
    with database.transaction() as session:
        assert [p.id for p in session.query(Project)] == ["b"]
        assert session.scalar(text("SHOW timezone")) == "UTC"
    database.close()


def test_no_kind_of_session_sees_a_run_under_deletion(stage: Stage) -> None:
    run_id = stage.submit()
    sessions = (stage.database.transaction, stage.database.lookup, stage.database.probe)
    for opened in sessions:
        with opened() as session:
            assert session.scalars(select(Run.id)).all() == [run_id]
    stage.change(run_id, lambda run: setattr(run, "deleting_at", stage.now))
    for opened in sessions:
        with opened() as session:
            assert session.scalars(select(Run.id)).all() == [], opened.__name__


def test_a_stuck_transaction_holds_nobody_up_for_long(make_database: Callable[..., str]) -> None:
    url = make_database()
    command.upgrade(alembic_config(url), "head")
    stuck, other = Database(url), Database(url, lock_timeout_s=0.05)
    with stuck.transaction() as session:
        session.add(Project(id="a", name="a"))
    with stuck.transaction() as holding:
        holding.scalar(select(Project).with_for_update())
        with pytest.raises(OperationalError, match="lock timeout"), other.transaction() as session:
            session.scalar(select(Project).with_for_update())
    with stuck.transaction() as session:
        assert session.scalar(text("SHOW lock_timeout")) == "10s"
        assert session.scalar(text("SHOW statement_timeout")) == "30s"
    stuck.close()
    other.close()


def test_a_database_that_is_away_says_so() -> None:
    database = Database("postgresql+psycopg://nobody@127.0.0.1:1/none")
    with pytest.raises(OperationalError):
        database.schema()
    database.close()


UNINDEXED = """
SELECT con.conrelid::regclass || '.' || string_agg(col.attname, ',' ORDER BY keys.place)
FROM pg_constraint con
CROSS JOIN LATERAL unnest(con.conkey) WITH ORDINALITY AS keys(number, place)
JOIN pg_attribute col ON col.attrelid = con.conrelid AND col.attnum = keys.number
WHERE con.contype = 'f' AND con.connamespace = 'public'::regnamespace
  AND NOT EXISTS (
    SELECT FROM pg_index idx
    WHERE idx.indrelid = con.conrelid AND idx.indisvalid
      AND (idx.indkey::smallint[])[0:cardinality(con.conkey) - 1] @> con.conkey
      AND (
        idx.indpred IS NULL
        OR pg_get_expr(idx.indpred, idx.indrelid) = '(' || (
          SELECT attname FROM pg_attribute WHERE attrelid = con.conrelid AND attnum = con.conkey[1]
        ) || ' IS NOT NULL)'
      )
  )
GROUP BY con.oid, con.conrelid
"""
"""Foreign keys with whose columns no index begins; an index of the rows with a value is one."""


def test_every_foreign_key_has_an_index(emptied: Migrated) -> None:
    """Without one, each row that is deleted reads all rows that may name it."""
    with emptied.database.transaction() as session:
        assert session.scalars(text(UNINDEXED)).all() == []


def test_a_connection_whose_network_is_gone_ends_within_seconds(emptied: Migrated) -> None:
    """Loopback loses no packet: this reads what the kernel was asked for."""
    with emptied.database.transaction() as session:
        driver = session.connection().connection.driver_connection
        assert driver is not None
        with socket.socket(fileno=os.dup(driver.fileno())) as wire:
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000
            assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
