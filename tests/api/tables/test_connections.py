"""The pools of the service's processes add up to what PostgreSQL allows, or somebody is told."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from api.tables.database import (
    BESIDE_POOL,
    Database,
    PoolsTooLarge,
    check_pools,
    count_connections,
)
from tests.fixtures.migrated import Migrated

OPEN = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'hillclimb 3 %'"


def test_a_process_never_has_more_connections_than_its_pool(emptied: Migrated) -> None:
    database = Database(emptied.url, pool=3, beside=0)

    def wait(_: int) -> None:
        with database.transaction() as session:
            session.execute(text("SELECT pg_sleep(0.1)"))

    seen = set()
    with ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(wait, number) for number in range(9)]
        while not all(each.done() for each in waiting):
            seen.add((emptied.admin.execute(OPEN).fetchone() or (0,))[0])
    assert max(seen) == 3
    database.close()


def test_what_all_processes_may_open_is_known_from_those_that_are_connected(
    emptied: Migrated,
) -> None:
    small, large = Database(emptied.url, pool=5, beside=0), Database(emptied.url, pool=500)
    with small.transaction() as session:
        before = count_connections(session)
    assert before.fault() is None
    with large.transaction() as session:
        now = count_connections(session)
    assert now.most - before.most == 500 + BESIDE_POOL
    assert now.processes - before.processes == 1
    fault = now.fault() or ""
    assert f"may open {now.most} connections, and PostgreSQL allows {now.allowed}" in fault
    assert "HILLCLIMB_DB_POOL" in fault
    assert "HILLCLIMB_DB_WORKER_POOL" in fault
    small.close()
    large.close()


def test_an_api_whose_own_pools_do_not_fit_is_refused_by_name(emptied: Migrated) -> None:
    database = Database(emptied.url)
    with database.transaction() as session:
        allowed = count_connections(session).allowed
        each = (allowed // 4) - BESIDE_POOL
        check_pools(session, processes=4, pool=each)
        sentence = rf"HILLCLIMB_API_PROCESSES.*5 × \({each} \+ {BESIDE_POOL}\).* the {allowed} "
        with pytest.raises(PoolsTooLarge, match=sentence):
            check_pools(session, processes=5, pool=each)
    database.close()


END = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s"


@pytest.fixture
def database(emptied: Migrated) -> Iterator[Database]:
    database = Database(emptied.url, pool=7, beside=0)
    yield database
    database.close()


def end_connections(emptied: Migrated, database: Database) -> None:
    """End the pool's connections, as a restart of PostgreSQL does."""
    with database.transaction() as session:
        name = session.scalar(text("SHOW application_name"))
    emptied.admin.execute(END, (name,))


def test_nobody_notices_that_an_idle_connection_is_gone(
    emptied: Migrated, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_connections(emptied, database)
    monkeypatch.setattr("api.tables.database.PING_AFTER_S", 0.0)
    with database.transaction() as session:
        assert session.scalar(text("SELECT 1")) == 1


def test_a_connection_that_was_just_used_is_not_asked_and_fails_once_after_a_restart(
    emptied: Migrated, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.tables.database.PING_AFTER_S", 60.0)
    with database.transaction() as session, database.transaction() as other:
        assert session.scalar(text("SELECT 1")) == other.scalar(text("SELECT 1"))
    end_connections(emptied, database)
    with pytest.raises(OperationalError), database.transaction() as session:
        session.execute(text("SELECT 1"))
    for _ in range(2):
        with database.transaction() as session:
            assert session.scalar(text("SELECT 1")) == 1


def test_each_statement_of_a_lookup_is_a_transaction_and_the_connection_goes_back_clean(
    database: Database,
) -> None:
    moment = text("SELECT now()")
    with database.lookup() as session:
        assert session.scalar(moment) != session.scalar(moment)
    with database.transaction() as session:
        assert session.scalar(moment) == session.scalar(moment)


def test_the_connections_of_a_burst_serve_the_next_one_and_quiet_times_take_one(
    emptied: Migrated,
) -> None:
    database = Database(emptied.url, pool=20)
    together = Barrier(20)

    def backend(_: int) -> int:
        with database.transaction() as session:
            pid = session.scalars(text("SELECT pg_backend_pid()")).one()
            together.wait(10)
            return int(pid)

    with ThreadPoolExecutor(20) as threads:
        first, second = (set(threads.map(backend, range(20))) for _ in "ab")
    assert len(first) == 20
    assert second == first
    together = Barrier(1)
    assert len({backend(number) for number in range(5)}) == 1
    database.close()
