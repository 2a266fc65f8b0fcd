"""Carries out requested deletions: for a few seconds per sweep, from where the last one stopped.

Order of a run: its blobs, the many rows, then the rest with the run itself in one transaction. The
run is hidden since the request, so a process that dies in the middle leaves nothing that answers,
and the mark on the row from which the next sweep goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.runs.journal import utc_now
from api.tables import DeletedRun, Run
from api.tables.training.deleted import INCLUDES_DELETING
from hillclimb.blobs.base import BlobStore, StoreError
from hillclimb.protocol.rundir import run_key
from worker.context import WorkerContext
from worker.deadlines import LATE_BLOBS
from worker.runs.removal import projects, rows
from worker.runs.removal.deadline import Deadline

log = logging.getLogger(__name__)

MAX_RUNS = 20
"""Runs whose deletion one sweep looks at."""


def sweep(
    context: WorkerContext, *, now: datetime | None = None, deadline: Deadline | None = None
) -> int:
    """Continue the deletions that were requested, oldest first; return how many were completed."""
    now, deadline = now or utc_now(), deadline or Deadline()
    num_completed = 0
    try:
        projects.sweep(context, now=now, deadline=deadline)
    except StoreError as error:
        log.warning("the datasets of a deleted project are left for now: %s", error)
    with context.database.transaction() as session:
        run_ids = _marked(session)
    for run_id in run_ids:
        if deadline.is_over:
            break
        try:
            num_completed += remove_run(context, run_id, now=now, deadline=deadline)
        except StoreError as error:
            log.warning("the blobs of deleted run %s are left for now: %s", run_id, error)
    if not run_ids:
        delete_late_blobs(context, now=now)
    return num_completed


def remove_run(context: WorkerContext, run_id: str, *, now: datetime, deadline: Deadline) -> bool:
    """Delete what a marked run has until the deadline; True once nothing is left.

    Raises:
        StoreError: the blob store does not respond.
    """
    for num_bytes in delete_blobs(context.store, run_key(run_id)):
        with context.database.transaction() as session:
            session.get_one(DeletedRun, run_id, with_for_update=True).num_bytes += num_bytes
        if deadline.is_over:
            return False
    for num_rows in _delete_many(context, run_id):
        with context.database.transaction() as session:
            session.get_one(DeletedRun, run_id, with_for_update=True).num_rows += num_rows
        if deadline.is_over:
            return False
    with context.database.transaction() as session:
        is_complete = rows.delete_rest(session, run_id, now=now)
    if is_complete:
        log.info("run %s is deleted", run_id)
    return is_complete


def _delete_many(context: WorkerContext, run_id: str) -> Iterator[int]:
    """Delete the many rows; yield the number of each batch, which is committed by then."""
    for table in rows.MANY:
        num_rows = rows.BATCH
        while num_rows == rows.BATCH:
            with context.database.transaction() as session:
                num_rows = rows.delete_batch(session, table, run_id)
            if num_rows:
                yield num_rows


def delete_blobs(store: BlobStore, prefix: str) -> Iterator[int]:
    """Delete the blobs under a prefix, a folder at a time; yield the bytes of each folder.

    Raises:
        StoreError: the store does not respond.
    """
    folders: dict[str, int] = {}
    depth = prefix.count("/") + 3
    for key, size in store.sizes(prefix).items():
        folder = "/".join(key.split("/")[:depth])
        folders[folder] = folders.get(folder, 0) + size
    for folder, num_bytes in sorted(folders.items()):
        store.delete_prefix(folder)
        yield num_bytes
    # Once more as a whole: uploads that were never completed, and empty directories.
    store.delete_prefix(prefix)


def delete_late_blobs(context: WorkerContext, *, now: datetime) -> None:
    """Delete blobs again that trainers without their service uploaded after the deletion."""
    with context.database.transaction() as session:
        query = select(DeletedRun.id).where(
            DeletedRun.checked_at.is_(None), DeletedRun.completed_at < now - LATE_BLOBS
        )
        run_ids = session.scalars(query.order_by(DeletedRun.completed_at).limit(MAX_RUNS)).all()
    for run_id in run_ids:
        try:
            if num_late := context.store.delete_prefix(run_key(run_id)):
                log.info("deleted %d late blobs of run %s", num_late, run_id)
        except StoreError as error:
            log.warning("late blobs of deleted run %s are left for now: %s", run_id, error)
            return
        with context.database.transaction() as session:
            session.get_one(DeletedRun, run_id).checked_at = now
            session.flush()
            projects.forget_runs(session, [run_id])


def _marked(session: Session) -> list[str]:
    query = select(Run.id).where(Run.deleting_at.is_not(None)).order_by(Run.deleting_at, Run.id)
    query = query.limit(MAX_RUNS).execution_options(**{INCLUDES_DELETING: True})
    return list(session.scalars(query))
