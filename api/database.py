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


class Database:
    """Connections to one PostgreSQL; make it after forking, close it at the end of the process."""

    def __init__(self, url: str) -> None:
        self._engine = create_engine(
            url,
            pool_size=POOL_SIZE,
            max_overflow=MAX_OVERFLOW,
            pool_pre_ping=True,
            connect_args={"connect_timeout": CONNECT_TIMEOUT_S},
        )
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Give a session; commit when the block ends, roll back when it raises.

        Objects stay readable after the commit. Make no network call inside the block.
        """
        with self._sessions.begin() as session:
            yield session

    def ping(self) -> None:
        """Return when the database answers; raises sqlalchemy.exc.OperationalError otherwise."""
        with self._engine.connect() as connection:
            connection.execute(text("SELECT 1"))

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()
