"""The process's one LISTEN connection: notifications in, wake-ups out.

It also shows others that the process is there (`api.runs.api_liveness`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from api.runs.api_liveness import ACQUIRE_LOCK
from api.runs.journal import CHANNEL
from api.tables.database import CONNECT_TIMEOUT_S

SWEEP_INTERVAL_S = 15.0
"""Watched runs are re-read this often even in silence: a lost wake-up costs seconds, not a page."""
GONE_S = 30.0
"""The server ends the connection of a process from which it hears nothing for so long: its host is
gone, or it stands still. Twice the interval, which says something each time, and half of a
runner's lease (`api.runs.deadlines.RUNNER_LEASE_S`)."""
RECONNECT_INTERVAL_S = 1.0
ANSWER_S = 5.0
"""A connection on which the server does not answer for so long is given up: whoever only listens
would not notice that nobody is there (a failover, an idle connection that was dropped)."""

log = logging.getLogger(__name__)


class Wakes(Protocol):
    """Receives the wake-ups."""

    def wake(self, run_id: str) -> None:
        """Something new in this run."""

    def wake_all(self) -> None:
        """Something new may have been missed anywhere."""


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
        # Before the lock: it is never held by a connection that could outlive its process for long.
        await connection.execute(sql.SQL("SET idle_session_timeout = {}").format(f"{GONE_S:g}s"))
        await connection.execute(ACQUIRE_LOCK)
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(CHANNEL)))
        # What was committed between the loss and this LISTEN was announced to nobody.
        hub.wake_all()
        while True:
            async for notification in connection.notifies(timeout=SWEEP_INTERVAL_S):
                run_id, _, _ = notification.payload.partition(":")
                hub.wake(run_id)
            async with asyncio.timeout(ANSWER_S):
                await connection.execute("SELECT 1")
            hub.wake_all()
    finally:
        # Not `close`, which may wait for a server that does not answer.
        connection.pgconn.finish()
