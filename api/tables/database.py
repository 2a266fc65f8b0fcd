"""Database access: the only module that opens, commits and rolls back sessions.

Sessions are synchronous everywhere: API routes are plain functions in a thread pool and Celery
tasks are plain functions, so domain code is written once. Only SSE has its own async connection.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection, NullPool, QueuePool, create_engine, event, text
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import ConnectionPoolEntry

from api.tables.access import audit
from api.tables.training.deleted import hide_deleting

LARGEST_POOL = 40
"""One connection for each of the 40 threads of an API process."""
BESIDE_POOL = 3
"""Connections of an API process that are none of its pool: LISTEN, readiness, one to spare."""
CONNECT_TIMEOUT_S = 5
LOCK_TIMEOUT_S = 10
STATEMENT_TIMEOUT_S = 30
"""A statement that waits or runs longer fails as if the database were down: one stuck transaction
must not block the API's threads, one after the other."""
PING_AFTER_S = 1.0
"""A pooled connection that was idle for longer is asked for an answer before it is used again. One
that answered a moment ago is not: a question for every transaction is a third of their round trips.
When PostgreSQL restarts, transactions of that second fail as those under way do."""
PROBE_TIMEOUT_S = 2
"""Limit of connecting, and of a statement, where only readiness waits for the answer."""
LOST_NETWORK = {
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}
"""The kernel ends a connection on which nothing was acknowledged for 10 s (ms), or whose other side
answers none of three probes (s): by itself it would let a request wait for a quarter of an hour."""
IDLE_IN_TRANSACTION_S = 60
"""PostgreSQL releases the locks of a process that hangs inside a transaction after this time."""
SCHEMA_REVISION = "1036"
"""The Alembic revision that this code requires, or one that descends from it."""
OUTDATED_REVISIONS = frozenset(f"{number:04}" for number in range(1, 13))
"""Revisions of the tables before 2026-11-23: no migration leads from them to this version."""

QUOTED_VALUE = re.compile(r'\bvalue "[^"]*"')
UNSTORABLE_CLASSES = frozenset({"22", "54"})
"""Classes of SQLSTATE of values that PostgreSQL can never store: out of a column's range, longer
than an index's row."""
ABSENCE_CLASSES = frozenset({"08", "28", "40", "53", "55", "57", "58"})
"""Classes of SQLSTATE that pass: no connection, no login, a deadlock, no memory or disk, a lock or
a statement that took too long, a shutdown, an error of its system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """The state of a database's tables."""

    revision: str | None
    """Null where it was never migrated."""
    earlier: frozenset[str] = frozenset()
    """Revisions whose code can read it; empty before revision 1027."""


def outdated_fault(revision: str | None) -> str | None:
    """Return why this version cannot read a database at `revision`; null where migrations can."""
    if revision not in OUTDATED_REVISIONS:
        return None
    return (
        f"This database was written by Hillclimb before 2026-11-23 (revision {revision}), and this"
        " version cannot read it. To keep its results, start the earlier version (git checkout"
        " fbee508) and export them with `hillclimb report`, `hillclimb pull` and"
        " `hillclimb datasets pull`; then start this version with another HILLCLIMB_HOME, or"
        " another DATABASE_URL."
    )


def revision_fault(schema: Schema) -> str | None:
    """Return why this code cannot use a database with that schema; null where it can.

    A newer schema that went through this code's revision only has more than the code knows: during
    an update, processes of the earlier version go on with it.
    """
    if schema.revision == SCHEMA_REVISION or SCHEMA_REVISION in schema.earlier:
        return None
    return outdated_fault(schema.revision) or (
        f"The database is at revision {schema.revision}, not {SCHEMA_REVISION}: run migrations."
    )


def has_history(connection: Connection) -> bool:
    """Return True for a database that records its revisions."""
    return connection.scalar(text("SELECT to_regclass('schema_revisions')::text")) is not None


def read_schema(connection: Connection) -> Schema:
    """Return which revision a database is at, and which it has gone through."""
    if connection.scalar(text("SELECT to_regclass('alembic_version')::text")) is None:
        return Schema(revision=None)
    revision: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    if not has_history(connection):
        return Schema(revision=revision)
    earlier = connection.scalars(text("SELECT revision FROM schema_revisions"))
    return Schema(revision=revision, earlier=frozenset(earlier))


def why_unstorable(error: Exception) -> str | None:
    """Return PostgreSQL's words about a value that it can never store; null for another error."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    if not isinstance(cause, psycopg.Error):
        return None
    if (
        not isinstance(cause, psycopg.DataError)
        and _sqlstate_class(cause) not in UNSTORABLE_CLASSES
    ):
        return None
    # The whole message would repeat the value, and name the statement.
    words = cause.diag.message_primary or str(cause).partition("\n")[0]
    return QUOTED_VALUE.sub("a value", words)


def is_absence(error: DBAPIError) -> bool:
    """Return True if the database did not respond, or will do later what it did not do now."""
    state = _sqlstate_class(error.orig) if isinstance(error.orig, psycopg.Error) else ""
    return not state or state in ABSENCE_CLASSES


def _sqlstate_class(error: psycopg.Error) -> str:
    """Return the first two characters of the SQLSTATE; none of an error without a server."""
    return (error.sqlstate or "")[:2]


class PoolsTooLarge(Exception):
    """The API may open more connections than PostgreSQL allows; the message names the settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionCount:
    """Connections that processes of the service may open, and that PostgreSQL allows them."""

    processes: int
    most: int
    """The sum over all processes that are connected now."""
    allowed: int
    """PostgreSQL's `max_connections` without those that it reserves."""

    def fault(self) -> str | None:
        """Return why some of them will be refused; null where all fit."""
        if self.most <= self.allowed:
            return None
        return (
            f"The {self.processes} processes of this service may open {self.most} connections, and"
            f" PostgreSQL allows {self.allowed}. Lower HILLCLIMB_DB_POOL (for each API process) or"
            " HILLCLIMB_DB_WORKER_POOL (for each process of a worker), or raise max_connections of"
            " PostgreSQL: some requests fail otherwise while many come at once."
        )


ALLOWED = text(
    "SELECT current_setting('max_connections')::int"
    " - current_setting('superuser_reserved_connections')::int"
    " - current_setting('reserved_connections')::int"
)
NAMES = text(
    "SELECT DISTINCT application_name FROM pg_stat_activity"
    " WHERE application_name ~ '^hillclimb [0-9]{1,4} '"
)


def count_connections(session: Session) -> ConnectionCount:
    """Count by the names that processes give their connections: how many each may open."""
    names = session.scalars(NAMES).all()
    return ConnectionCount(
        processes=len(names),
        most=sum(int(name.split()[1]) for name in names),
        allowed=session.scalars(ALLOWED).one(),
    )


def check_pools(session: Session, *, processes: int, pool: int) -> None:
    """Raise PoolsTooLarge where the API processes of one address have no room by themselves."""
    most, allowed = processes * (pool + BESIDE_POOL), session.scalars(ALLOWED).one()
    if most > allowed:
        each = f"{processes} × ({pool} + {BESIDE_POOL})"
        raise PoolsTooLarge(
            f"HILLCLIMB_API_PROCESSES × (HILLCLIMB_DB_POOL + {BESIDE_POOL}) = {each} = {most}"
            f" connections are more than the {allowed} that PostgreSQL allows: lower one of the two"
            " settings, or raise max_connections of PostgreSQL."
        )


class Database:
    """A connection pool of one PostgreSQL; create it after forking, close it at process exit.

    `pool` is the largest number of its connections, `beside` of others that the process has.
    """

    def __init__(
        self,
        url: str,
        *,
        pool: int = LARGEST_POOL,
        beside: int = BESIDE_POOL,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> None:
        timeouts = {
            "lock_timeout": f"{lock_timeout_s * 1000:.0f}ms",
            "statement_timeout": f"{STATEMENT_TIMEOUT_S}s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
        }
        self.pool_size = pool
        """Largest number of connections that transactions have at once."""
        self._engine = create_engine(
            url,
            # All stay open: a smaller pool closes the others after each use, and logs in again.
            pool_size=pool,
            max_overflow=0,
            # The one that was used last is used next: a few stay warm, and are asked for nothing.
            pool_use_lifo=True,
            connect_args={
                "application_name": _name(pool + beside),
                "connect_timeout": CONNECT_TIMEOUT_S,
                "options": _options(timeouts),
                **LOST_NETWORK,
            },
        )
        self._probes = create_engine(
            url,
            poolclass=NullPool,
            connect_args={
                "connect_timeout": PROBE_TIMEOUT_S,
                "options": _options({"statement_timeout": f"{PROBE_TIMEOUT_S}s"}),
            },
        )
        event.listen(self._engine, "connect", _note_use)
        event.listen(self._engine, "checkin", _note_use)
        event.listen(self._engine, "checkout", self._check_idle)
        self._sessions = sessionmaker(self._engine, expire_on_commit=False)
        self._lookups = sessionmaker(
            self._engine.execution_options(isolation_level="AUTOCOMMIT"), expire_on_commit=False
        )
        event.listen(self._sessions, "before_flush", audit.collect)
        event.listen(self._sessions, "do_orm_execute", audit.notice)
        self._probing = sessionmaker(self._probes)
        for sessions in (self._sessions, self._lookups, self._probing):
            event.listen(sessions, "do_orm_execute", hide_deleting)

    @contextmanager
    def transaction(self) -> Iterator[Session]:
        """Yield a session; commit at the end of the block, roll back when it raises.

        Objects stay readable after the commit. Make no network call inside the block. A request
        that changes something gets its record of the audit log in the same transaction.
        """
        with self._sessions.begin() as session, audit.recording(session):
            yield session

    @contextmanager
    def lookup(self) -> Iterator[Session]:
        """Yield a session in which each statement is a transaction of its own.

        For a statement or two that need not see the same moment: without BEGIN and COMMIT they take
        a third of the round trips. Nothing is undone, and no record of the audit log is written.
        """
        with self._lookups() as session:
            yield session

    @contextmanager
    def probe(self) -> Iterator[Session]:
        """Yield a session for reading on a connection of its own, whatever the pool's are doing.

        Raises sqlalchemy.exc.OperationalError when the database does not respond.
        """
        with self._probing() as session:
            yield session

    @property
    def has_free_connection(self) -> bool:
        """True where the next transaction does not wait for another one's connection."""
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        return pool.checkedout() < self.pool_size

    def schema(self) -> Schema:
        """Return the revision of the database, and those that it has gone through.

        Raises sqlalchemy.exc.OperationalError when the database does not respond.
        """
        with self._engine.connect() as connection:
            return read_schema(connection)

    def _check_idle(
        self, connection: psycopg.Connection, record: ConnectionPoolEntry, _proxy: object
    ) -> None:
        """Replace all pooled connections where one that was idle does not answer."""
        if time.monotonic() - record.info["used_at"] < PING_AFTER_S:
            return
        try:
            self._engine.dialect.do_ping(connection)  # type: ignore[arg-type]
        except psycopg.Error as error:
            raise InvalidatePoolError from error

    def close(self) -> None:
        """Close every pooled connection."""
        self._engine.dispose()


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used_at"] = time.monotonic()


def _name(most: int) -> str:
    """Return the name of a process's connections, of which it may open so many."""
    return f"hillclimb {most} {socket.gethostname()[:32]}:{os.getpid()}"


def _options(settings: Mapping[str, str]) -> str:
    """Return settings of a connection as libpq's `options`, in UTC."""
    return " ".join(f"-c {name}={value}" for name, value in {"timezone": "UTC", **settings}.items())
