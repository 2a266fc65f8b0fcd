"""Clusters that carry our tag and have no owner: what the reaper met, and ending them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters.errors import StrayNotFound
from api.tables import StrayCluster

GRACE = timedelta(minutes=10)
"""So long a cluster with our tag and without an owner is only watched."""


def strays(session: Session) -> Sequence[StrayCluster]:
    """Return what the newest sweep met, the oldest first."""
    query = select(StrayCluster).order_by(StrayCluster.met_at, StrayCluster.name)
    return session.scalars(query).all()


def ask_end(session: Session, name: str, *, actor: str, now: datetime) -> StrayCluster:
    """Want a stray ended at the next sweep: without the grace, and where the reaper runs dry.

    The sweep looks again whether it has an owner. Raises StrayNotFound.
    """
    found = session.get(StrayCluster, name)
    if found is None:
        raise StrayNotFound(
            f"No cluster without an owner has the name {name}: it is gone, or a run has it."
            " `hillclimb strays` lists those there are."
        )
    if found.end_asked_at is None:
        found.end_asked_at, found.end_asked_by = now, actor
    return found
