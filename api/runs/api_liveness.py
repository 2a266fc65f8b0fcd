"""Liveness of API processes: each holds a shared advisory lock in the database.

PostgreSQL releases the lock with its connection, however the process ended. For a host that is cut
off or a process that hangs, it closes the connection after 30 s of silence
(`api.http.live.listener`): until then the API counts as alive. A process whose connection was
dropped on the way reconnects within 40 s: until then the API counts as down, which only extends
deadlines.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

_SPACE: Final = 0x48454152
"""First key of the advisory lock; the second one is 0."""
ACQUIRE_LOCK: Final = f"SELECT pg_advisory_lock_shared({_SPACE}, 0)"
"""Executed once on a connection that lasts as long as the process."""
_LOCK_EXISTS = text(
    "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
    " WHERE datname = current_database() AND locktype = 'advisory' AND granted"
    " AND classid = :space AND objid = 0 AND objsubid = 2)"
)


def is_api_alive(session: Session) -> bool:
    """Return True when an API process is connected to this database."""
    return bool(session.scalar(_LOCK_EXISTS, {"space": _SPACE}))
