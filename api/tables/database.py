"""The one place that opens, commits and rolls back database sessions.

Sessions are synchronous everywhere: API routes are plain functions in a thread pool and Celery
tasks are plain functions, so domain code is written once. Only SSE holds its own async connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session, sessionmaker

POOL_SIZE = 10
MAX_OVERFLOW = 30
"""The API's thread pool has 40 threads: each may hold one connection."""
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
"""A statement that waits or works longer fails as if the database were away: one stuck transaction
must not take the API's threads with it, one after the other."""
IDLE_IN_TRANSACTION_S = 60
"""Of a process that stopped inside a transaction, until PostgreSQL frees its locks."""
SCHEMA_REVISION = "0012"
"""The Alembic revision this code is written for."""


class Database:
    """Connections to one PostgreSQL; make it after forking, close it at the end of the process."""

    def __init__(self, url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S) -> None:
        settings = {
            "timezone": "UTC",
            "lock_timeout": f"{lock_timeout_s * 1000:.0f}ms",
            "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._engine = create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=MAX_OVERFLOW,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": options},
        )
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Give a session; commit when the block ends, roll back when it raises.

        Objects stay readable after the commit. Make no network call inside the block.
        """
        with self._sessions.begin() as session:
            yield session

    def revision(self) -> str | None:
        """Return the revision the database is at; null for one that was never migrated.

        Raises sqlalchemy.exc.OperationalError when the database does not answer.
        """
        with self._engine.connect() as connection:
            table = connection.scalar(text("SELECT to_regclass('alembic_version')::text"))
            if table is None:
                return None
            found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
            return found

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()
