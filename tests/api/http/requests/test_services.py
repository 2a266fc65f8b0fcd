"""The parts of the service: closed by whoever opened them."""

from __future__ import annotations

from sqlalchemy import text

from api.http.requests.services import open_services
from api.settings import Settings
from api.tables.database import Database
from hillclimb.stack.system.poll import wait_until
from tests.api.http.conftest import RememberingBell

PID = text("SELECT pg_backend_pid()")
IS_CONNECTED = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")


def pid_of(database: Database) -> int:
    """Return the process id of PostgreSQL's backend that serves the next transaction."""
    with database.transaction() as session:
        return session.scalars(PID).one()


def test_connections_of_the_caller_stay_open(
    settings: Settings, task_queue: RememberingBell, database: Database
) -> None:
    before = pid_of(database)
    with open_services(settings, {}, task_queue, database) as services:
        assert services.database is database
    assert pid_of(database) == before


def test_connections_of_its_own_end_with_the_block(
    settings: Settings, task_queue: RememberingBell, database: Database
) -> None:
    with open_services(settings, {}, task_queue) as services:
        own = pid_of(services.database)
        assert own != pid_of(database)
    with database.lookup() as session:
        assert wait_until(lambda: session.scalar(IS_CONNECTED, {"pid": own}) == 0, deadline_s=10)
