"""Fixtures with real servers, for every test outside `tests/trainer`."""

from collections.abc import Callable, Iterator

import pytest

from tests.postgres import (
    RunningPostgres,
    RunningValkey,
    start_test_postgres,
    start_test_valkey,
)


@pytest.fixture(scope="session")
def postgres() -> Iterator[RunningPostgres]:
    """The session's PostgreSQL, with `create_database(template=..., prepare=...)`."""
    running = start_test_postgres()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def postgres_url(postgres: RunningPostgres) -> str:
    """`postgresql+psycopg://` URL of the session's one empty database."""
    return postgres.url


@pytest.fixture(scope="session")
def make_database(postgres: RunningPostgres) -> Callable[..., str]:
    """Factory of fresh databases: `make_database()` is empty;

    `make_database(template="migrated", prepare=migrate)` copies what `migrate(url)` made once.
    """
    return postgres.create_database


@pytest.fixture(scope="session")
def valkey() -> Iterator[RunningValkey]:
    """The session's Valkey."""
    running = start_test_valkey()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def redis_url(valkey: RunningValkey) -> str:
    """`redis://` URL of the session's Valkey, database 0; flush it or prefix your keys."""
    return valkey.url
