"""Whose turn it is: one process per database keeps the connection to Slack, the others wait.

The turn is an advisory lock of PostgreSQL, which ends with the connection that holds it, however
its process ended. For a host that is cut off, PostgreSQL closes the connection after `GONE_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql
from sqlalchemy.engine import make_url

from api.tables.database import CONNECT_TIMEOUT_S

_SPACE: Final = 0x534C4143
"""First key of the advisory lock; the second one is 0."""
GONE_S = 30.0
POLL_S = 1.0
ANSWER_S = 5.0
"""A database that does not answer within this time may have given the turn to another process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTurn:
    """The turn, as long as `check` succeeds."""

    connection: psycopg.AsyncConnection

    async def check(self) -> None:
        """Raise psycopg.Error or TimeoutError when the turn may be lost."""
        async with asyncio.timeout(ANSWER_S):
            await self.connection.execute("SELECT 1")


@asynccontextmanager
async def wait_for_turn(database_url: str) -> AsyncIterator[SlackTurn]:
    """Yield once no other process has the turn; it ends with the block. Raises psycopg.Error."""
    url = make_url(database_url).set(drivername="postgresql")
    connection = await psycopg.AsyncConnection.connect(
        url.render_as_string(hide_password=False),
        autocommit=True,
        connect_timeout=CONNECT_TIMEOUT_S,
    )
    try:
        await connection.execute(sql.SQL("SET idle_session_timeout = {}").format(f"{GONE_S:g}s"))
        await _wait(connection)
        yield SlackTurn(connection=connection)
    finally:
        # Not `close`, which may wait for a server that does not respond.
        connection.pgconn.finish()


async def _wait(connection: psycopg.AsyncConnection) -> None:
    """Return once the lock is held.

    It asks again and again: a statement that waits would not notice that its server is gone.
    """
    while True:
        async with asyncio.timeout(ANSWER_S):
            cursor = await connection.execute("SELECT pg_try_advisory_lock(%s, 0)", (_SPACE,))
            row = await cursor.fetchone()
        if row and row[0]:
            return
        await asyncio.sleep(POLL_S)
