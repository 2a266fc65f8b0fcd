"""Leases of clusters: a row lease with an epoch, as for runs (`api.runs.leases`).

A cluster has its own, because workers still terminate it when its run has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, or_, select, update
from sqlalchemy.orm import Session

from api.runs.deadlines import CLUSTER_LEASE_S
from api.runs.errors import LeaseLost
from api.tables import Cluster


def claim(session: Session, cluster_id: str, *, now: datetime) -> Cluster | None:
    """Claim the cluster's lease; null when it is terminated, not due, or leased.

    Never waits: skips a row that another transaction locks.
    """
    free = (
        select(Cluster.id)
        .where(Cluster.id == cluster_id, _is_due(now))
        .with_for_update(skip_locked=True, key_share=True)
        .scalar_subquery()
    )
    claimed = (
        update(Cluster)
        .where(Cluster.id == free)
        .values(epoch=Cluster.epoch + 1, lease_until=now + timedelta(seconds=CLUSTER_LEASE_S))
        .returning(Cluster)
    )
    options = {"populate_existing": True, "synchronize_session": False}
    return session.scalar(claimed.execution_options(**options))


def hold(session: Session, cluster_id: str, epoch: int) -> Cluster:
    """Return the cluster, locked and fresh, for writing; raises LeaseLost under a newer epoch."""
    cluster = session.scalar(
        select(Cluster)
        .where(Cluster.id == cluster_id, Cluster.epoch == epoch)
        .with_for_update(key_share=True)
        .execution_options(populate_existing=True)
    )
    if cluster is None:
        raise LeaseLost(f"The lease {epoch} of cluster {cluster_id} is over.")
    return cluster


def renew(session: Session, cluster_id: str, epoch: int, *, now: datetime) -> None:
    """Extend the lease; raises LeaseLost under a newer epoch."""
    hold(session, cluster_id, epoch).lease_until = now + timedelta(seconds=CLUSTER_LEASE_S)


def release(cluster: Cluster, *, due_at: datetime | None) -> None:
    """Release the lease of a cluster; it is checked again at `due_at`, or never."""
    cluster.lease_until = None
    cluster.due_at = due_at


def lock_due(session: Session, *, now: datetime, limit: int) -> Sequence[Cluster]:
    """Return due clusters, locked: the longest overdue first, then the oldest.

    Skips those that another transaction locks.
    """
    return session.scalars(
        select(Cluster)
        .where(_is_due(now))
        .order_by(Cluster.due_at, Cluster.id)
        .limit(limit)
        .with_for_update(skip_locked=True, key_share=True)
        .execution_options(populate_existing=True)
    ).all()


def _is_due(now: datetime) -> ColumnElement[bool]:
    free = or_(Cluster.lease_until.is_(None), Cluster.lease_until < now)
    return (Cluster.due_at <= now) & free
