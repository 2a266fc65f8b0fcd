"""Checks the budgets of all runs with clusters, and the time limits of the clusters."""

from __future__ import annotations

from datetime import datetime

from api.runs import store
from api.runs.journal import utc_now
from api.scheduling.limits.spending import runs_to_watch, watch
from api.scheduling.limits.wallclock import runs_to_warn, wind_down
from worker.context import WorkerContext


def sweep(context: WorkerContext, *, now: datetime | None = None) -> int:
    """Check every run near its budget or time limit; returns the count of paused runs."""
    now = now or utc_now()
    with context.database.transaction() as session:
        watched = set(runs_to_watch(session, now=now))
        watched |= set(runs_to_warn(session, now=now))
    num_paused = 0
    for run_id in sorted(watched):
        with context.database.transaction() as session:
            run = store.lock_run(session, run_id)
            num_paused += watch(session, run, now=now) or wind_down(session, run, now=now)
    return num_paused
