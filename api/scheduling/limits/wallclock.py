"""The maximum lifetime of a cluster: its run saves a checkpoint and pauses before the limit.

The worker terminates a cluster at its limit in any case; a run that is paused before loses no
step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import store
from api.clusters.store import ClusterState
from api.runs.deadlines import MAX_SHUTDOWN_NOTICE
from api.runs.end_reasons import REASONS
from api.runs.status import DesiredState
from api.scheduling import control
from api.tables import Cluster, Run
from hillclimb.protocol.end_reasons import ReasonCode


def runs_to_warn(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ids of the runs with a cluster whose limit is within `MAX_SHUTDOWN_NOTICE`."""
    query = select(Cluster.run_id).where(Cluster.state == ClusterState.RUNNING.value)
    return session.scalars(query.where(Cluster.wall_limit_at <= now + MAX_SHUTDOWN_NOTICE)).all()


def wind_down(session: Session, run: Run, *, now: datetime) -> bool:
    """Pause a locked run whose cluster is near its limit; True when it is paused now."""
    if run.desired_state != DesiredState.RUNNING.value or run.status not in control.STOPPABLE:
        return False
    for cluster in store.live_of_run(session, run.id):
        if cluster.state != ClusterState.RUNNING.value or cluster.wall_limit_at is None:
            continue
        notice = min(MAX_SHUTDOWN_NOTICE, timedelta(hours=cluster.max_hours) / 10)
        if now >= cluster.wall_limit_at - notice:
            code = ReasonCode.CLUSTER_TIME_UP
            reason = (code, REASONS[code].wording)
            control.pause_for_reason(session, run, reason, actor="service", now=now)
            return True
    return False
