"""Overview of a project's clusters and their costs: for the API, the CLI and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.clusters import budgets, cloud_worker, cost, exclusions
from api.clusters.budgets import Allowance
from api.clusters.cost import CostForecast, Spent
from api.clusters.store import ClusterState, max_clusters, of_run
from api.tables import CloudExclusion, Cluster, Run

MAX_PAST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCost:
    """A cluster, its run and its cost."""

    cluster: Cluster
    run: Run
    spent: Spent


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The clusters of one project, now."""

    live: tuple[ClusterCost, ...]
    """All that are not known to be terminated, newest first."""
    past: tuple[ClusterCost, ...]
    """The newest terminated ones."""
    spent: Spent
    """The cost of all clusters ever."""
    hourly_usd: float | None
    """Price of all clusters billed now; null while a price is unknown."""
    budget: Allowance | None
    max_clusters: int
    exclusions: Sequence[CloudExclusion]
    """Cloud exclusions in force, of all projects."""
    warning: str | None
    """A sentence when no worker checks the project's clusters; null otherwise."""


def overview(session: Session, project_id: str, *, now: datetime) -> Overview:
    """Return the overview of a project."""
    mine = select(Cluster, Run).join(Run, Run.id == Cluster.run_id)
    mine = mine.where(Cluster.project_id == project_id)
    mine = mine.order_by(Cluster.created_at.desc(), Cluster.id.desc())
    is_terminated = Cluster.state == ClusterState.TERMINATED.value
    live = session.execute(mine.where(~is_terminated)).all()
    past = session.execute(mine.where(is_terminated).limit(MAX_PAST)).all()
    everything = session.scalars(select(Cluster).where(Cluster.project_id == project_id)).all()
    return Overview(
        live=tuple(_cluster_cost(*each, now=now) for each in live),
        past=tuple(_cluster_cost(*each, now=now) for each in past),
        spent=cost.total(cost.of_cluster(each, now=now) for each in everything),
        hourly_usd=cost.forecast([each[0] for each in live], eta_s=None, now=now).hourly_usd,
        budget=budgets.of_project(session, project_id, now=now),
        max_clusters=max_clusters(session, project_id),
        exclusions=exclusions.in_force(session, now=now),
        warning=cloud_worker.cloud_worker_warning(session, now=now, project_id=project_id),
    )


def forecast_of_run(session: Session, run: Run, *, now: datetime) -> CostForecast | None:
    """Return the cost forecast of a run; null for one without a cluster."""
    clusters = of_run(session, run.id)
    return cost.forecast(clusters, eta_s=run.progress_eta_s, now=now) if clusters else None


def status_message(cluster: Cluster) -> str | None:
    """Return the cluster's end message and the reason of its current state."""
    return "; ".join(filter(None, (cluster.message, cluster.status_reason))) or None


def _cluster_cost(cluster: Cluster, run: Run, *, now: datetime) -> ClusterCost:
    return ClusterCost(cluster=cluster, run=run, spent=cost.of_cluster(cluster, now=now))
