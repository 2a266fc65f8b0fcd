"""That somebody is there to take heartbeats: each API process holds a shared lock in the database.

The lock goes with its connection, and so with the process, however that ended. Of a machine that
is cut off, and of a process that stands still, the server gives it up 30 s after it heard the last
(`api.live.listener`): until then nobody seems to be away. A connection that was dropped on the way
is made anew within 40 s: until then nobody seems to be there, which ends nothing.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import text
from sqlalchemy.orm import Session

_SPACE: Final = 0x48454152
"""First key of the advisory lock; the second one is 0."""
HOLD: Final = f"SELECT pg_advisory_lock_shared({_SPACE}, 0)"
"""Run once on a connection that lives as long as the process."""
_IS_HELD = text(
    "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database"
    " WHERE datname = current_database() AND locktype = 'advisory' AND granted"
    " AND classid = :space AND objid = 0 AND objsubid = 2)"
)


def is_api_there(session: Session) -> bool:
    """Say whether an API process is connected to this database."""
    return bool(session.scalar(_IS_HELD, {"space": _SPACE}))
