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
SCHEMA_REVISION = "0002"
"""The Alembic revision this code is written for."""


class Database:
    """Connections to one PostgreSQL; make it after forking, close it at the end of the process."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=MAX_OVERFLOW,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": "-c timezone=UTC"},
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
