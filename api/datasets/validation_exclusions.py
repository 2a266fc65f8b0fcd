"""Excludes the tasks that failed a validation whose spec has `validation.exclude`.

The worker does this once per report, after the run's end: the rows of its newest report are a file
in the blob store, and a later event `validation.excluded` marks them as processed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import islice

from pydantic import ValidationError
from sqlalchemy import ColumnElement, exists, func, select
from sqlalchemy.orm import Session, aliased

from api.datasets import exclusions, store
from api.results.errors import NoSuchValidation
from api.results.preflight.newest_event import newest_event
from api.results.preflight.validation import TYPE, find_validation, read_rows
from api.runs.journal import Draft, append
from api.runs.status import TERMINAL
from api.runs.store import lock_run
from api.tables import DatasetVersion, Run, RunEvent
from api.tables.database import Database
from hillclimb.blobs.base import BlobStore
from hillclimb.datasets.filter.exclusions import Exclusion, exclude_failed

EXCLUDED = "validation.excluded"
RECENT = timedelta(days=7)
"""Runs that ended earlier were processed, or never can be."""
AT_ONCE = 20
MAX_IN_STATEMENT = 1000
"""Exclusions per INSERT."""


def waiting_runs(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ids of ended validations whose failed tasks are not excluded yet.

    In random order: runs that cannot be processed never block the others.
    """
    query = select(Run.id).where(
        Run.status.in_([status.value for status in TERMINAL]),
        Run.ended_at > now - RECENT,
        Run.spec["kind"].as_string() == "validate",
        Run.spec["validation"]["exclude"].as_boolean(),
        _has_new_report(),
    )
    return session.scalars(query.order_by(func.random()).limit(AT_ONCE)).all()


def exclude_what_failed(
    database: Database, blobs: BlobStore, run_id: str, *, now: datetime
) -> int | None:
    """Exclude the tasks that failed in the run; returns the number of new exclusions.

    None when another worker did so meanwhile, or a newer report arrived. A permanent exclusion
    keeps its reason; a temporary one becomes permanent.

    Raises:
        StoreError: the store does not answer; nothing was done.
    """
    with database.transaction() as session:
        run = session.get_one(Run, run_id)
        validation = find_validation(session, run)
        version = session.get_one(DatasetVersion, run.spec["data"]["dataset"]["id"])
        num_tasks = version.num_tasks
    problem: str | None = None
    failed: list[Exclusion] = []
    try:
        rows = read_rows(blobs, validation.key, verdict="excluded", env=None)
        failed = [exclude_failed(row) for row in islice(rows, num_tasks + 1)]
        if len(failed) > num_tasks:
            failed, problem = [], "The validation has more rows than its dataset has tasks."
    except NoSuchValidation as error:
        problem = str(error)
    except ValidationError:
        problem = "The validation's rows name a task that no dataset can have."
    with database.transaction() as session:
        run = lock_run(session, run_id)
        excluded = newest_event(session, run_id, EXCLUDED)
        report = newest_event(session, run_id, TYPE)
        is_processed = excluded is not None and excluded.seq > validation.report_seq
        if is_processed or report is None or report.seq != validation.report_seq:
            return None
        name = run.spec["data"]["dataset"]["name"]
        num_new = _add(session, run, name, failed, now=now)
        data = {"dataset": name, "num_failed": len(failed), "num_excluded": num_new}
        notice = Draft(type=EXCLUDED, at=now, data={**data, "problem": problem})
        append(session, run, [notice])
    return num_new


def _add(
    session: Session, run: Run, name: str, failed: Sequence[Exclusion], *, now: datetime
) -> int:
    dataset = store.find_dataset(session, run.project_id, name)
    in_force = store.list_exclusions(session, dataset, now=now)
    # A temporary exclusion expires, and this validation is not processed again.
    permanent = {
        exclusion.key
        for exclusion in in_force
        if exclusion.scope == "task" and exclusion.expires_at is None
    }
    fresh = [exclusion for exclusion in failed if exclusion.key not in permanent]
    for start in range(0, len(fresh), MAX_IN_STATEMENT):
        part = fresh[start : start + MAX_IN_STATEMENT]
        exclusions.add(session, dataset, part, actor=f"run:{run.id}")
    return len(fresh)


def _has_new_report() -> ColumnElement[bool]:
    """A condition on `Run`: a report is unprocessed; the last may arrive after the run's end."""
    report, excluded = aliased(RunEvent), aliased(RunEvent)
    is_processed = exists().where(
        excluded.run_id == report.run_id, excluded.type == EXCLUDED, excluded.seq > report.seq
    )
    return exists().where(report.run_id == Run.id, report.type == TYPE, ~is_processed)
