"""Looks at the budgets of all runs that spend, and at how long they have had their machines."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from api.clusters.spending import watch
from api.clusters.store import ClusterState
from api.clusters.wallclock import wind_down
from api.runs import store
from api.runs.journal import utc_now
from api.tables import Cluster
from worker.parts import Parts


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Look at every run that spends; returns how many were paused."""
    now = now or utc_now()
    spending = (
        select(Cluster.run_id)
        .where(Cluster.paid_from.is_not(None), Cluster.state != ClusterState.GONE.value)
        .distinct()
    )
    with parts.database.transaction() as session:
        run_ids = session.scalars(spending.order_by(Cluster.run_id)).all()
    num_paused = 0
    for run_id in run_ids:
        with parts.database.transaction() as session:
            run = store.lock_run(session, run_id)
            num_paused += watch(session, run, now=now) or wind_down(session, run, now=now)
    return num_paused
