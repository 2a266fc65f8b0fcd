"""Migrations make exactly the tables that the code declares."""

from collections.abc import Callable

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import select, text
from sqlalchemy.exc import OperationalError

from api.database import SCHEMA_REVISION, Database
from api.tables import Base, Project, Runner
from tests.migrated import alembic_config
from trainer.contract.launch import OLD_KINDS


def test_the_code_is_written_for_the_newest_migration() -> None:
    script = ScriptDirectory.from_config(alembic_config("postgresql+psycopg://unused"))
    assert script.get_current_head() == SCHEMA_REVISION


def test_migrating_up_leaves_no_difference_to_the_tables(
    make_database: Callable[..., str],
) -> None:
    url = make_database()
    configuration = alembic_config(url)
    database = Database(url)
    assert database.revision() is None
    command.upgrade(configuration, "head")
    command.check(configuration)
    assert database.revision() == SCHEMA_REVISION
    command.downgrade(configuration, "base")
    command.upgrade(configuration, "head")
    database.close()


def test_every_top_level_table_belongs_to_a_project() -> None:
    tables = Base.metadata.tables
    below_a_run = {name for name, table in tables.items() if "run_id" in table.columns}
    below_a_run |= {name for name, table in tables.items() if "cluster_id" in table.columns}
    # The operator's own: which service this is, and what all projects learn of the clouds.
    operators = {"deployments", "stray_clusters", "cloud_exclusions", "price_quotes"}
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
        database.revision()
    database.close()


def test_runners_that_an_older_version_registers_carry_out_the_kinds_it_knew(
    make_database: Callable[..., str],
) -> None:
    """In a rolling update old API processes go on for a while on the new tables."""
    url = make_database()
    command.upgrade(alembic_config(url), "head")
    database = Database(url)
    with database.transaction() as session:
        session.add(Project(id="a", name="a"))
        session.flush()
        session.execute(
            text(
                "INSERT INTO runners (id, project_id, name, slots, hostname, draining, lease_until,"
                " registered_at) VALUES ('rnr_1', 'a', 'box', 1, 'box', false, now(), now())"
            )
        )
        assert session.scalar(select(Runner.kinds)) == list(OLD_KINDS)
    database.close()
