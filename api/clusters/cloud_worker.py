"""Whether somebody asks the clouds: clusters that nobody could end, or that nobody looks after."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from api.clusters import store
from api.clusters.store import ClusterState
from api.tables import Cluster

SHOWN = 5
"""Names in the message."""
UNATTENDED_S = 300.0
"""A cluster whose look is so long overdue shows that nobody asks the clouds: longer than their
slowest answer, or a worker that was killed in waiting for it, holds it up."""


class ClustersUnattended(Exception):
    """The message is a sentence for the operator."""


def refuse_unattended(session: Session, *, clouds: str, abandon: bool) -> None:
    """Look for clusters that are not gone, where `clouds` names nobody who could end them.

    Raises:
        ClustersUnattended: there are some, and the operator has not said to leave them.
    """
    if clouds or abandon:
        return
    names = sorted(store.live_by_name(session))
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ClustersUnattended(
            f"{len(names)} clusters are not gone ({', '.join(names[:SHOWN])}{more}), and"
            " HILLCLIMB_CLOUDS is empty: nobody would end them, or count what they cost. Start"
            " with `hillclimb up --with-sky` or set HILLCLIMB_CLOUDS; to leave them to others, set"
            " HILLCLIMB_ABANDON_CLUSTERS=1."
        )


def unattended(session: Session, *, now: datetime, project_id: str | None = None) -> str | None:
    """Return what is wrong where clusters wait for somebody to ask the clouds; null: nothing.

    Only what needs an answer of theirs shows it: the general worker puts off what is well, so with
    nobody in attendance an overdue look is one that nobody can take. Without `project_id`: of all.
    """
    is_free = or_(Cluster.lease_until.is_(None), Cluster.lease_until < now)
    overdue = (
        select(func.count(), func.min(Cluster.due_at))
        .where(Cluster.state != ClusterState.GONE.value, is_free)
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
        f"Nobody has looked after {of} for {minutes} min: nothing is rented and nothing is ended,"
        " and what is rented is paid for. With HILLCLIMB_CLOUDS set, the scheduler, a worker, and"
        " one that reads the queue `clusters` have to run (`python -m celery -A worker.app worker"
        " --queues clusters`, docs/deploy.md)."
    )
