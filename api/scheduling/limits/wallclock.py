"""The longest life of a cluster: its run checkpoints and rests before the machines are taken away.

The reaper ends a cluster at its limit whatever it does; a run that is asked to leave before loses
no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import store
from api.clusters.store import ClusterState
from api.runs import control
from api.runs.reasons import REASONS
from api.runs.status import DesiredState
from api.tables import Cluster, Run
from trainer.contract.reasons import ReasonCode

LONGEST_NOTICE = timedelta(minutes=15)
"""Before the limit; a tenth of a cluster's life where that is less."""


def runs_to_warn(session: Session, *, now: datetime) -> Sequence[str]:
    """Return ids of the runs with a cluster whose time is up within the longest notice."""
    query = select(Cluster.run_id).where(Cluster.state == ClusterState.UP.value)
    return session.scalars(query.where(Cluster.wall_limit_at <= now + LONGEST_NOTICE)).all()


def wind_down(session: Session, run: Run, *, now: datetime) -> bool:
    """Let a locked run checkpoint and rest if its cluster's time is nearly up; True if now."""
    if run.desired_state != DesiredState.RUNNING.value or run.status not in control.STOPPABLE:
        return False
    for cluster in store.live_of_run(session, run.id):
        if cluster.state != ClusterState.UP.value or cluster.wall_limit_at is None:
            continue
        notice = min(LONGEST_NOTICE, timedelta(hours=cluster.max_hours) / 10)
        if now >= cluster.wall_limit_at - notice:
            code = ReasonCode.CLUSTER_TIME_UP
            reason = (code, REASONS[code].wording)
            control.rest(session, run, reason, actor="service", now=now)
            return True
    return False
