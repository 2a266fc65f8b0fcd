"""The servers the other tests stand on."""

from collections.abc import Callable

import psycopg
import pytest

from hillclimb.stack.servers.valkey import answers_ping
from tests.fixtures.postgres import RunningPostgres, RunningValkey


def plain(url: str) -> str:
    return url.replace("+psycopg", "")


def test_a_database_copied_from_a_template_has_its_tables_and_is_prepared_once(
    make_database: Callable[..., str],
) -> None:
    prepared = []

    def prepare(url: str) -> None:
        prepared.append(url)
        with psycopg.connect(plain(url)) as connection:
            connection.execute("CREATE TABLE seeds (n int)")

    first = make_database(template="seeds", prepare=prepare)
    second = make_database(template="seeds", prepare=prepare)
    with psycopg.connect(plain(first)) as connection:
        connection.execute("INSERT INTO seeds VALUES (1)")
    with psycopg.connect(plain(second)) as connection:
        assert connection.execute("SELECT count(*) FROM seeds").fetchone() == (0,)
    assert len(prepared) == 1


def test_a_wrong_database_password_is_refused(postgres: RunningPostgres) -> None:
    url = plain(postgres.url).replace(postgres.server.password, "guess")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(url)


def test_the_cluster_sorts_by_the_builtin_utf8_locale(postgres_url: str) -> None:
    with psycopg.connect(plain(postgres_url)) as connection:
        row = connection.execute(
            "SELECT datlocprovider, datlocale FROM pg_database WHERE datname = current_database()"
        ).fetchone()
    assert row == ("b", "C.UTF-8")


def test_valkey_answers_only_with_its_password(valkey: RunningValkey) -> None:
    server = valkey.server
    assert server.ready()
    assert not answers_ping(server.port, "guess")
    assert not answers_ping(server.port, "")
