"""Looks at the budgets of all runs that spend, and at how long they have had their machines."""

from __future__ import annotations

from datetime import datetime

from api.clusters.spending import runs_to_watch, watch
from api.clusters.wallclock import runs_to_warn, wind_down
from api.runs import store
from api.runs.journal import utc_now
from worker.parts import Parts


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Look at every run that spends and is near its budget; returns how many were paused."""
    now = now or utc_now()
    with parts.database.transaction() as session:
        watched = set(runs_to_watch(session, now=now))
        watched |= set(runs_to_warn(session, now=now))
    num_paused = 0
    for run_id in sorted(watched):
        with parts.database.transaction() as session:
            run = store.lock_run(session, run_id)
            num_paused += watch(session, run, now=now) or wind_down(session, run, now=now)
    return num_paused
