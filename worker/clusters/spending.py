"""Looks at the budgets of all runs that spend."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select

from api.clusters.spending import watch
from api.clusters.store import ClusterState
from api.runs import store
from api.runs.journal import utc_now
from api.tables import Cluster
from worker.parts import Parts


def sweep(parts: Parts, *, now: datetime | None = None) -> int:
    """Look at every run that spends; returns how many were paused."""
    now = now or utc_now()
    spending = select(Cluster.run_id).where(Cluster.state == ClusterState.UP.value).distinct()
    with parts.database.transaction() as session:
        run_ids = session.scalars(spending.order_by(Cluster.run_id)).all()
    num_paused = 0
    for run_id in run_ids:
        with parts.database.transaction() as session:
            num_paused += watch(session, store.lock_run(session, run_id), now=now)
    return num_paused
