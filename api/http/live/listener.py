"""Listener of a process: one LISTEN connection, whose notifications wake the hub.

The connection also shows workers that the process is alive (`api.runs.api_liveness`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import psycopg
from psycopg import sql
from psycopg.pq.abc import PGconn
from sqlalchemy.engine import make_url

from api.runs.api_liveness import ACQUIRE_LOCK
from api.runs.journal import CHANNEL
from api.tables.database import CONNECT_TIMEOUT_S

SWEEP_INTERVAL_S = 15.0
"""Interval of unconditional wake-ups: a lost notification delays events by seconds only."""
GONE_S = 30.0
"""PostgreSQL closes a connection that is idle for this long: its host is cut off or its process
hangs. Twice `SWEEP_INTERVAL_S`, after which a live process queries, and half of a runner's lease
(`api.runs.deadlines.RUNNER_LEASE_S`)."""
RECONNECT_INTERVAL_S = 1.0
ANSWER_S = 5.0
"""Timeout of the regular query: a connection that only listens would not notice that its server is
gone (a failover, a dropped idle connection)."""

log = logging.getLogger(__name__)


class Wakes(Protocol):
    """Receives the wake-ups."""

    def wake(self, run_id: str) -> None:
        """Announce new events of a run."""

    def wake_all(self) -> None:
        """Announce that events of any run may have been missed."""


async def listen(database_url: str, hub: Wakes) -> None:
    """Forward notifications until cancelled; reconnects, and re-reads after every gap."""
    conninfo = (
        make_url(database_url).set(drivername="postgresql").render_as_string(hide_password=False)
    )
    while True:
        try:
            await _listen_once(conninfo, hub)
        except (psycopg.Error, TimeoutError) as error:
            log.warning("LISTEN connection lost, reconnecting: %s", error or "no answer")
        hub.wake_all()
        await asyncio.sleep(RECONNECT_INTERVAL_S)


async def _listen_once(conninfo: str, hub: Wakes) -> None:
    connection = await psycopg.AsyncConnection.connect(
        conninfo, autocommit=True, connect_timeout=CONNECT_TIMEOUT_S
    )
    try:
        # Before the lock, so that no connection with it can outlive its process for long.
        await connection.execute(sql.SQL("SET idle_session_timeout = {}").format(f"{GONE_S:g}s"))
        await connection.execute(ACQUIRE_LOCK)
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        # Else those that come beside an answer are kept for a reader that there is not.
        connection.add_notify_handler(lambda notification: _wake(hub, notification.payload))
        # Nothing announced the commits between the loss and this LISTEN.
        hub.wake_all()
        while True:
            await _forward(connection.pgconn, hub, SWEEP_INTERVAL_S)
            async with asyncio.timeout(ANSWER_S):
                await connection.execute("SELECT 1")
            hub.wake_all()
    finally:
        # Not `close`, which may wait for a server that does not respond.
        connection.pgconn.finish()


async def _forward(connection: PGconn, hub: Wakes, seconds: float) -> None:
    """Forward notifications for so long, from the socket of the connection.

    Not by `AsyncConnection.notifies`: a task, a timer and a reader for each of a hundred a second
    took 6 to 13 % of the CPU time of a process to which runs are submitted.
    """
    loop = asyncio.get_running_loop()
    lost: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            connection.consume_input()
            while (notification := connection.notifies()) is not None:
                _wake(hub, notification.extra.decode())
        except psycopg.Error as error:
            # At once: libpq has closed the descriptor, whose number another connection may get.
            loop.remove_reader(descriptor)
            lost.set_exception(error)

    descriptor = connection.socket
    loop.add_reader(descriptor, read)
    try:
        await asyncio.wait([lost], timeout=seconds)
        if lost.done():
            lost.result()
    finally:
        if not lost.done():
            loop.remove_reader(descriptor)


def _wake(hub: Wakes, payload: str) -> None:
    run_id, _, _ = payload.partition(":")
    hub.wake(run_id)
