"""An API process as others see it: nobody answers, but it is there."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from sqlalchemy import text
from sqlalchemy.orm import Session

from api.runs.api_liveness import ACQUIRE_LOCK


@dataclass(slots=True)
class Api:
    """What an API process holds in the database while it is connected."""

    url: str
    _connection: psycopg.Connection | None = None

    def comes(self) -> None:
        if self._connection is None:
            self._connection = psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True)
            self._connection.execute(ACQUIRE_LOCK)

    def goes(self) -> None:
        """The server may take a moment to see that: the lock is given up first."""
        if self._connection is not None:
            self._connection.execute("SELECT pg_advisory_unlock_all()")
            self._connection.close()
            self._connection = None


def be_there(session: Session) -> None:
    """Be an API process until the transaction ends."""
    session.execute(text(ACQUIRE_LOCK.replace("pg_advisory_lock", "pg_advisory_xact_lock")))
