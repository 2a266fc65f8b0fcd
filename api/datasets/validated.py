"""Leaves out what a validation found to fail, where its spec says so (`validation.exclude`).

It happens once per run, after its end: the rows of its newest report are a file in the blob store,
and the event `validation.excluded` says that they were dealt with.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, exists, select
from sqlalchemy.orm import Session

from api.database import Database
from api.datasets import exclusions, store
from api.evals.errors import NoSuchValidation
from api.evals.newest import newest_event
from api.evals.validation import TYPE, find_validation, read_rows
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL
from api.runs.store import lock_run
from api.tables import Run, RunEvent
from trainer.contract.datasets.exclusions import Exclusion, exclude_failed
from trainer.stores.base import BlobStore

EXCLUDED = "validation.excluded"
RECENT = timedelta(days=7)
"""Runs that ended before were dealt with, or never can be."""
AT_ONCE = 20
MAX_IN_STATEMENT = 1000
"""Exclusions that one statement inserts."""


def waiting_runs(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ended validations that are to exclude what failed and have not done so yet."""
    query = select(Run.id).where(
        Run.status.in_([status.value for status in TERMINAL]),
        Run.ended_at > now - RECENT,
        Run.spec["kind"].as_string() == "validate",
        Run.spec["validation"]["exclude"].as_boolean(),
        _has(TYPE),
        ~_has(EXCLUDED),
    )
    return session.scalars(query.order_by(Run.ended_at).limit(AT_ONCE)).all()


def exclude_what_failed(
    database: Database, blobs: BlobStore, run_id: str, *, now: datetime
) -> int | None:
    """Exclude the tasks that the run found to fail; returns how many are new.

    None when somebody else did meanwhile. A task that is kept out already keeps its reason.

    Raises:
        StoreError: the store does not answer; nothing was done.
    """
    with database.transaction() as session:
        found = find_validation(session, session.get_one(Run, run_id))
    problem, failed = None, []
    try:
        rows = read_rows(blobs, found.key, verdict="excluded", env=None)
        failed = [exclude_failed(row) for row in rows]
    except NoSuchValidation as error:
        problem = str(error)
    with database.transaction() as session:
        run = lock_run(session, run_id)
        if newest_event(session, run_id, EXCLUDED) is not None:
            return None
        name = run.spec["data"]["dataset"]["name"]
        num_new = _add(session, run, name, failed, now=now)
        data = {"dataset": name, "num_failed": len(failed), "num_excluded": num_new}
        told = Draft(type=EXCLUDED, at=now, data={**data, "problem": problem})
        append(session, run, [told])
    return num_new


def _add(
    session: Session, run: Run, name: str, failed: Sequence[Exclusion], *, now: datetime
) -> int:
    dataset = store.find_dataset(session, run.project_id, name)
    in_force = store.list_exclusions(session, dataset, now=now)
    known = {each.key for each in in_force if each.scope == "task"}
    fresh = [each for each in failed if each.key not in known]
    for start in range(0, len(fresh), MAX_IN_STATEMENT):
        part = fresh[start : start + MAX_IN_STATEMENT]
        exclusions.add(session, dataset, part, actor=f"run:{run.id}")
    return len(fresh)


def _has(event_type: str) -> ColumnElement[bool]:
    return exists().where(RunEvent.run_id == Run.id, RunEvent.type == event_type)
