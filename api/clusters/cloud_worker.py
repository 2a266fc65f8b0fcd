"""Checks that a worker polls the clouds while clusters exist: otherwise none terminates them."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from api.clusters import store
from api.clusters.store import ClusterState
from api.runs.deadlines import UNATTENDED_S
from api.tables import Cluster

MAX_NAMES = 5
"""Names in an error message."""


class CloudWorkerMissing(Exception):
    """The message is a sentence for the operator."""


def require_cloud_worker(session: Session, *, clouds: str, abandon: bool) -> None:
    """Refuse to start with live clusters and no provider in `clouds` to terminate them.

    Raises:
        CloudWorkerMissing: there are some, and `abandon` is not set.
    """
    if clouds or abandon:
        return
    names = sorted(store.live_by_name(session))
    if names:
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        raise CloudWorkerMissing(
            f"{len(names)} clusters are not terminated ({', '.join(names[:MAX_NAMES])}{more}), and"
            " HILLCLIMB_CLOUDS is empty: no worker would terminate them or count their cost. Start"
            " with `hillclimb up --with-sky` or set HILLCLIMB_CLOUDS; to abandon them, set"
            " HILLCLIMB_ABANDON_CLUSTERS=1."
        )


def cloud_worker_warning(
    session: Session, *, now: datetime, project_id: str | None = None
) -> str | None:
    """Return a warning when clusters wait for a worker that polls the clouds; null otherwise.

    The general worker defers healthy clusters, so an overdue check is one that only a worker of
    the queue `clusters` can make. Without `project_id`: over all projects.
    """
    is_free = or_(Cluster.lease_until.is_(None), Cluster.lease_until < now)
    overdue = (
        select(func.count(), func.min(Cluster.due_at))
        .where(Cluster.state != ClusterState.TERMINATED.value, is_free)
        .where(Cluster.due_at < now - timedelta(seconds=UNATTENDED_S))
    )
    if project_id is not None:
        overdue = overdue.where(Cluster.project_id == project_id)
    number, oldest = session.execute(overdue).one()
    if not number or oldest is None:
        return None
    minutes = int((now - oldest).total_seconds() // 60)
    of = "1 cluster" if number == 1 else f"{number} clusters"
    return (
        f"No worker has checked {of} for {minutes} min: no cluster is launched or terminated, and"
        " running ones cost money. With HILLCLIMB_CLOUDS set, the scheduler, a worker, and"
        " one that reads the queue `clusters` have to run (`python -m celery -A worker.app worker"
        " --queues clusters`, docs/deploy.md)."
    )
