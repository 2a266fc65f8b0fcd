"""The service's role reads and writes rows, and can do nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from hillclimb.stack.servers.postgres import PostgresServer
from tests.fixtures.migrated import Migrated, as_service


@pytest.fixture
def service(emptied: Migrated) -> Iterator[psycopg.Connection]:
    with psycopg.connect(emptied.url.replace("+psycopg", ""), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE runs",
        "TRUNCATE runs",
        "ALTER TABLE runs ADD COLUMN mine int",
        "CREATE TABLE mine (id int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE ROLE mine SUPERUSER",
        "ALTER ROLE current_user SUPERUSER",
        "COPY runs TO '/tmp/stolen'",
        "COPY runs TO PROGRAM 'cat'",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT rolpassword FROM pg_authid",
        "UPDATE audit_records SET actor = 'nobody'",
        "DELETE FROM audit_records",
        "UPDATE alembic_version SET version_num = '1'",
        "DELETE FROM schema_revisions",
    ],
)
def test_it_may_not(service: psycopg.Connection, statement: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        service.execute(statement)


def test_it_may_use_rows_and_analyze(service: psycopg.Connection) -> None:
    service.execute("INSERT INTO projects (id, name, created_at) VALUES ('prj_a', 'a', now())")
    service.execute("UPDATE projects SET name = 'b'")
    service.execute("DELETE FROM projects")
    notices: list[str] = []
    service.add_notice_handler(lambda notice: notices.append(str(notice.message_primary)))
    service.execute("ANALYZE rescored_outcomes")
    assert notices == [], "PostgreSQL only warns, and does nothing, where a right is missing"


def test_a_second_migration_changes_its_password_and_nothing_else(
    emptied: Migrated, postgres_url: str
) -> None:
    owner = postgres_url.rpartition("/")[0] + "/" + emptied.url.rpartition("/")[2]
    assert as_service(owner) == emptied.url
    with psycopg.connect(emptied.url.replace("+psycopg", "")) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)


def test_the_embedded_role_has_a_password_that_follows_from_the_owners(tmp_path: Path) -> None:
    def url(password: str) -> str:
        return PostgresServer(directory=tmp_path, port=1, password=password).service_url()

    assert url("a") == url("a") != url("b")
    assert "hillclimb_service:" in url("a")
    assert ":a@" not in url("a")
