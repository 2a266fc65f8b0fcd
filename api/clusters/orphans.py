"""Orphaned clusters: they carry our tag and have no run; listed and terminated on request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters.errors import OrphanNotFound
from api.tables import OrphanedCluster


def orphaned_clusters(session: Session) -> Sequence[OrphanedCluster]:
    """Return the orphaned clusters of the newest cluster sweep, the oldest first."""
    query = select(OrphanedCluster).order_by(OrphanedCluster.first_seen_at, OrphanedCluster.name)
    return session.scalars(query).all()


def request_termination(
    session: Session, name: str, *, actor: str, now: datetime
) -> OrphanedCluster:
    """Request termination of an orphan at the next cluster sweep: without grace, also in a dry run.

    The cluster sweep checks again that no run owns it. Raises OrphanNotFound.
    """
    orphan = session.get(OrphanedCluster, name)
    if orphan is None:
        raise OrphanNotFound(
            f"There is no orphaned cluster {name}: it is terminated, or a run owns it."
            " `hillclimb orphans` lists the orphaned clusters."
        )
    if orphan.terminate_requested_at is None:
        orphan.terminate_requested_at, orphan.terminate_requested_by = now, actor
    return orphan
