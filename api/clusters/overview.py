"""What a project has rented now, and what all of it has cost: for the API, the CLI and a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import attendance, budgets, cost, exclusions
from api.clusters.budgets import Allowance
from api.clusters.cost import Outlook, Spent
from api.clusters.store import ClusterState, max_clusters, of_run
from api.tables import CloudExclusion, Cluster, Run

MAX_PAST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A cluster, its run, and what it has cost."""

    cluster: Cluster
    run: Run
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Of one project, now."""

    live: tuple[Rented, ...]
    """Newest first: all that are not known to be gone."""
    past: tuple[Rented, ...]
    """The newest of those that are gone."""
    spent: Spent
    """By all clusters there ever were."""
    hourly_usd: float | None
    """Of all that is paid for now; null while a price is not known."""
    budget: Allowance | None
    max_clusters: int
    exclusions: Sequence[CloudExclusion]
    """Learnt of the clouds, by all projects."""
    warning: str | None
    """That nobody looks after the project's clusters; null: somebody does."""


def overview(session: Session, project_id: str, *, now: datetime) -> Overview:
    """Return what a project rents."""
    mine = select(Cluster, Run).join(Run, Run.id == Cluster.run_id)
    mine = mine.where(Cluster.project_id == project_id)
    mine = mine.order_by(Cluster.created_at.desc(), Cluster.id.desc())
    is_gone = Cluster.state == ClusterState.GONE.value
    live = session.execute(mine.where(~is_gone)).all()
    past = session.execute(mine.where(is_gone).limit(MAX_PAST)).all()
    everything = session.scalars(select(Cluster).where(Cluster.project_id == project_id)).all()
    return Overview(
        live=tuple(_rented(*each, now=now) for each in live),
        past=tuple(_rented(*each, now=now) for each in past),
        spent=cost.total(cost.of_cluster(each, now=now) for each in everything),
        hourly_usd=cost.outlook([each[0] for each in live], eta_s=None, now=now).hourly_usd,
        budget=budgets.of_project(session, project_id, now=now),
        max_clusters=max_clusters(session, project_id),
        exclusions=exclusions.in_force(session, now=now),
        warning=attendance.unattended(session, now=now, project_id=project_id),
    )


def of_one_run(session: Session, run: Run, *, now: datetime) -> Outlook | None:
    """Return what a run costs; null for one that has asked for no cluster."""
    found = of_run(session, run.id)
    return cost.outlook(found, eta_s=run.progress_eta_s, now=now) if found else None


def told(cluster: Cluster) -> str | None:
    """Return why a cluster ends or has ended, and what it waits for."""
    return "; ".join(filter(None, (cluster.message, cluster.waits_for))) or None


def _rented(cluster: Cluster, run: Run, *, now: datetime) -> Rented:
    return Rented(cluster=cluster, run=run, spent=cost.of_cluster(cluster, now=now))
