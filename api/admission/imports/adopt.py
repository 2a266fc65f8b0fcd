"""Stores an imported run once: files first, then its rows in one transaction.

The digest of what was imported identifies it in its project: a second import of the same adopts
the run of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from api.tables import Run
from api.tables.access.identity import Principal
from api.tables.database import Database
from api.tables.ids import new_id
from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.payloads.runs import OriginPayload
from hillclimb.protocol.rundir import run_key


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportContext:
    """The parts of the service that an import uses, and who imports."""

    database: Database
    store: BlobStore
    caller: Principal
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKey:
    """Identity of the run that an import writes."""

    id: str
    project_id: str
    actor: str
    origin: OriginPayload
    now: datetime


Write = Callable[[Session, RunKey], Run]
"""Writes the run and its rows in the transaction of the session."""


def adopt_or_store(
    context: ImportContext, origin: OriginPayload, files: Mapping[str, Path], write: Write
) -> tuple[str, bool]:
    """Return the run's id, and whether this import stored it; else an earlier one did.

    `files` are stored under the run's prefix first, by their keys there; they are deleted again
    where the rows cannot be written.

    Raises:
        StoreError: the blob store does not respond.
    """
    existing = earlier_import(context, origin)
    if existing is not None:
        return existing, False
    project_id = context.caller.project_id
    key = RunKey(
        id=new_id("run"),
        project_id=project_id,
        actor=context.caller.actor,
        origin=origin,
        now=context.now,
    )
    is_stored = False
    try:
        for name, path in files.items():
            context.store.put_file(run_key(key.id, name), path)
        with context.database.transaction() as session:
            _lock(session, project_id, origin)
            existing = _find(session, project_id, origin)
            if existing is None:
                write(session, key)
        is_stored = existing is None
    finally:
        if not is_stored and files:
            context.store.delete_prefix(run_key(key.id))
    return existing or key.id, is_stored


def earlier_import(context: ImportContext, origin: OriginPayload) -> str | None:
    """Return the id of the run that the project has imported from the same; None without one."""
    with context.database.transaction() as session:
        return _find(session, context.caller.project_id, origin)


def _find(session: Session, project_id: str, origin: OriginPayload) -> str | None:
    query = select(Run.id).where(
        Run.project_id == project_id,
        Run.origin["kind"].as_string() == origin.kind,
        Run.origin["digest"].as_string() == origin.digest,
    )
    return session.scalar(query.order_by(Run.created_at, Run.id).limit(1))


def _lock(session: Session, project_id: str, origin: OriginPayload) -> None:
    """Have two imports of the same wait for each other until the transaction ends."""
    name = f"import:{project_id}:{origin.digest}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))
