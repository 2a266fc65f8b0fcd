"""Ends the streams of callers who may no longer read: keys revoked, members removed, signed out.

Streams outlive the request in which the caller was admitted, so each process looks up the callers
of its open streams again every `INTERVAL_S` seconds, all of them in one short transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime

import anyio.to_thread
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from api.http.live.hub import Hub
from api.runs.journal import utc_now
from api.tables.access.errors import IdentityError
from api.tables.access.identity import Principal, Scope
from api.tables.access.members import look_up_again
from api.tables.database import Database

INTERVAL_S = 1.0

log = logging.getLogger(__name__)


async def end_refused_streams(
    hub: Hub, database: Database, *, clock: Callable[[], datetime] = utc_now
) -> None:
    """Close the streams of callers who were refused, until it is cancelled."""
    while True:
        await asyncio.sleep(INTERVAL_S)
        callers = hub.callers
        if not callers:
            continue
        try:
            refused = await anyio.to_thread.run_sync(_refused, database, callers, clock())
        except SQLAlchemyError as error:
            log.warning("callers of streams cannot be checked, trying again: %s", error)
            continue
        hub.close_streams_of(refused)


def _refused(
    database: Database, callers: Iterable[Principal], now: datetime
) -> frozenset[Principal]:
    with database.transaction() as session:
        return frozenset(each for each in callers if not _may_read(session, each, now=now))


def _may_read(session: Session, caller: Principal, *, now: datetime) -> bool:
    try:
        look_up_again(session, caller, now=now).require(Scope.RUNS_READ)
    except IdentityError:
        return False
    return True
