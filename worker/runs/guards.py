"""Trips the guard of progress of the runs whose time has come."""

from __future__ import annotations

from datetime import datetime

from api.runs import store
from api.runs.api_liveness import is_api_alive
from api.runs.journal import utc_now
from api.scheduling.limits.guards import stuck
from api.scheduling.limits.guards.watch import trip_stuck
from worker.context import WorkerContext

MAX_RUNS = 100
"""Runs of one sweep; the next one follows two seconds later."""


def sweep(context: WorkerContext, *, now: datetime | None = None) -> int:
    """Check every run whose guard is due; return the number of guards that tripped.

    While no API process receives events, none trips: a trainer cannot report its progress then.
    """
    now = now or utc_now()
    with context.database.transaction() as session:
        if not is_api_alive(session):
            stuck.extend_all(session, now=now)
            return 0
        due = stuck.due_runs(session, now=now, limit=MAX_RUNS)
    num_tripped = 0
    for run_id in due:
        with context.database.transaction() as session:
            num_tripped += trip_stuck(session, store.lock_run(session, run_id), now=now)
    return num_tripped
