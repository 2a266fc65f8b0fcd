"""Whether an API process is there, told by the database."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.engine import make_url

from api.http.live import listener
from api.runs.api_liveness import is_api_alive
from api.runs.deadlines import RUNNER_LEASE_S
from api.runs.journal import CHANNEL, utc_now
from api.tables import Attempt
from api.tables.database import Database
from hillclimb.stack.system.poll import wait_until
from tests.api.fixtures.serving import serve
from tests.api.fixtures.story import Story


def _is_there(database: Database) -> bool:
    with database.transaction() as session:
        return is_api_alive(session)


def test_an_api_is_there_as_long_as_one_of_its_processes_is(
    database: Database, database_url: str, tmp_path: Path
) -> None:
    assert not _is_there(database)
    with serve(database_url, database, tmp_path):
        assert wait_until(lambda: _is_there(database), deadline_s=10)
        with serve(database_url, database, tmp_path):
            pass
        assert _is_there(database)
    assert wait_until(lambda: not _is_there(database), deadline_s=10)


def test_only_a_process_that_has_the_api_to_itself_renews_leases_at_its_start(
    story: Story, story_url: str, tmp_path: Path
) -> None:
    """One that dies again and again would keep runners alive that are long gone."""
    run_id = story.running()
    old = utc_now() - timedelta(hours=1)

    def last_seen() -> datetime:
        with story.database.transaction() as session:
            at = session.scalars(select(Attempt.last_held_at).where(Attempt.run_id == run_id)).one()
            session.execute(update(Attempt).values(last_held_at=old))
            assert at is not None
            return at

    last_seen()
    with serve(story_url, story.database, tmp_path):
        assert last_seen() > old
        assert wait_until(lambda: _is_there(story.database), deadline_s=10)
        with serve(story_url, story.database, tmp_path):
            assert last_seen() == old


class Nobody:
    """Whom the listener wakes."""

    def wake(self, run_id: str) -> None:
        pass

    def wake_all(self) -> None:
        pass


class Noting(Nobody):
    """Notes the runs that it is woken for."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    def wake(self, run_id: str) -> None:
        self.woken.append(run_id)


async def test_many_notifications_are_forwarded_without_a_wait_for_each(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_waits = 0
    wait = psycopg.AsyncConnection.wait

    async def counted(connection: psycopg.AsyncConnection, *args: Any, **options: Any) -> Any:
        nonlocal num_waits
        num_waits += 1
        return await wait(connection, *args, **options)

    def notify_one_by_one(last: int) -> None:
        for number in range(last):
            with database.transaction() as session:
                facts = {"channel": CHANNEL, "payload": f"run_{number}:1"}
                session.execute(text("SELECT pg_notify(:channel, :payload)"), facts)

    heard = Noting()
    listening = asyncio.create_task(listener.listen(database_url, heard))
    assert await becomes(lambda: _is_there(database))
    monkeypatch.setattr(psycopg.AsyncConnection, "wait", counted)
    while not heard.woken:  # until it listens
        await asyncio.to_thread(notify_one_by_one, 1)
    heard.woken.clear()
    before = num_waits
    await asyncio.to_thread(notify_one_by_one, 300)
    assert await becomes(lambda: "run_299" in heard.woken)
    listening.cancel()
    assert list(dict.fromkeys(heard.woken)) == [f"run_{n}" for n in range(300)]
    assert num_waits - before <= 2  # regular queries


class Proxy:
    """Between clients and the server, until it drops the server's ends and tells nobody."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.num_connections = 0
        self._ends: list[asyncio.StreamWriter] = []
        self._servers: list[asyncio.StreamWriter] = []

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        there, out = await asyncio.open_connection("127.0.0.1", self.port)
        self._ends += [writer, out]
        self._servers.append(out)
        await asyncio.gather(_copy(reader, out), _copy(there, writer))

    def drop(self) -> None:
        for server in self._servers:
            server.transport.abort()

    async def close(self) -> None:
        for end in self._ends:
            end.transport.abort()
        for end in self._ends:
            with suppress(ConnectionError):
                await end.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            if not writer.is_closing():
                writer.write(data)


async def becomes(is_there: Callable[[], bool]) -> bool:
    return await asyncio.to_thread(wait_until, is_there, deadline_s=30)


@pytest.mark.invariant("a LISTEN connection that nobody answers is replaced")
async def test_a_connection_that_nobody_answers_is_made_anew(
    database: Database, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failover, or an idle connection that was dropped on the way: TCP tells of neither."""
    monkeypatch.setattr(listener, "SWEEP_INTERVAL_S", 0.2)
    monkeypatch.setattr(listener, "ANSWER_S", 0.5)
    url = make_url(database_url)
    assert url.port is not None
    proxy = Proxy(url.port)
    server = await asyncio.start_server(proxy.pass_on, "127.0.0.1", 0)
    through = url.set(port=server.sockets[0].getsockname()[1])
    told = through.render_as_string(hide_password=False)
    listening = asyncio.create_task(listener.listen(told, Nobody()))
    assert await becomes(lambda: _is_there(database))
    proxy.drop()
    assert await becomes(lambda: not _is_there(database))
    assert await becomes(lambda: _is_there(database))
    assert proxy.num_connections > 1
    listening.cancel()
    with suppress(asyncio.CancelledError):
        await listening
    server.close()
    await proxy.close()


LISTENS = """
import asyncio, sys
from api.http.live import listener
class Nobody:
    def wake(self, run_id): pass
    def wake_all(self): pass
listener.SWEEP_INTERVAL_S, listener.GONE_S = 0.5, 5.0
asyncio.run(listener.listen(sys.argv[1], Nobody()))
"""


@pytest.mark.invariant("an API process that stands still does not count as alive")
def test_a_process_that_stands_still_is_not_there(database: Database, database_url: str) -> None:
    """To the server its host is as if the power had gone: the kernel may answer, it does not."""
    with subprocess.Popen([sys.executable, "-c", LISTENS, database_url]) as process:
        try:
            assert wait_until(lambda: _is_there(database), deadline_s=120)
            assert not wait_until(lambda: not _is_there(database), deadline_s=7)
            process.send_signal(signal.SIGSTOP)
            assert wait_until(lambda: _told(database) and not _is_there(database), deadline_s=30)
            process.send_signal(signal.SIGCONT)
            assert wait_until(lambda: _is_there(database), deadline_s=120)
        finally:
            process.kill()


def _told(database: Database) -> bool:
    """What the server sends is no word of the process."""
    with database.transaction() as session:
        session.execute(text(f"NOTIFY {CHANNEL}, 'run_1:1'"))
    return True


def test_whoever_is_there_says_so_in_time_and_whoever_is_not_within_a_lease() -> None:
    assert listener.SWEEP_INTERVAL_S + 2 * listener.ANSWER_S < listener.GONE_S
    assert listener.SWEEP_INTERVAL_S + listener.GONE_S < RUNNER_LEASE_S
