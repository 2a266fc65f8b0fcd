"""Builds the payloads of clusters, orphaned clusters and budgets from their rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from api.clusters import budgets, cost, store
from api.clusters.overview import ClusterCost, Overview, status_message
from api.runs.deadlines import ORPHAN_GRACE
from api.tables import Cluster, LaunchTry, OrphanedCluster, Run
from hillclimb.protocol.payloads.clusters import (
    ClusterList,
    ClusterPayload,
    OfferPayload,
    OrphanPayload,
    ProjectClusterPayload,
    ProjectClusters,
)
from hillclimb.protocol.payloads.costs import (
    AllowancePayload,
    BudgetPayload,
    CloudExclusionPayload,
    SpentPayload,
)


def describe_clusters(session: Session, run: Run, *, now: datetime) -> ClusterList:
    """Return the clusters of a run with the offers that were tried, and their cost."""
    clusters = store.of_run(session, run.id)
    ledger = store.launch_tries_of(session, [cluster.id for cluster in clusters])
    spent = cost.total(cost.of_cluster(cluster, now=now) for cluster in clusters)
    return ClusterList(
        data=[_cluster(cluster, ledger, now=now) for cluster in clusters],
        spent=SpentPayload.model_validate(spent),
    )


def describe_project(clusters: Overview) -> ProjectClusters:
    """Return the clusters of a project with their cost, its budget and the cloud exclusions."""
    budget = clusters.budget
    return ProjectClusters(
        data=[_project_cluster(each) for each in clusters.live],
        past=[_project_cluster(each) for each in clusters.past],
        spent=SpentPayload.model_validate(clusters.spent),
        hourly_usd=clusters.hourly_usd,
        budget=None if budget is None else AllowancePayload.model_validate(budget),
        max_clusters=clusters.max_clusters,
        exclusions=[CloudExclusionPayload.model_validate(each) for each in clusters.exclusions],
        warning=clusters.warning,
    )


def describe_budget(session: Session, run: Run, *, now: datetime) -> BudgetPayload:
    """Return the budgets of a run and of its project, with the run's cost."""
    allowances = budgets.allowances(session, run, now=now)
    spent = budgets.spent_by_run(session, run.id, now=now)
    return BudgetPayload(
        data=[AllowancePayload.model_validate(each) for each in allowances],
        spent=SpentPayload.model_validate(spent),
    )


def describe_orphan(orphan: OrphanedCluster, *, dry: bool) -> OrphanPayload:
    """Return an orphaned cluster with the time of its end; a dry reaper terminates none."""
    return OrphanPayload(
        name=orphan.name,
        first_seen_at=orphan.first_seen_at,
        ends_at=None if dry else orphan.first_seen_at + ORPHAN_GRACE,
        terminate_requested_at=orphan.terminate_requested_at,
        terminate_requested_by=orphan.terminate_requested_by,
    )


def _project_cluster(cluster_cost: ClusterCost) -> ProjectClusterPayload:
    others = ("object", "run_name", "message", "spent")
    names = [name for name in ProjectClusterPayload.model_fields if name not in others]
    return ProjectClusterPayload(
        **{name: getattr(cluster_cost.cluster, name) for name in names},
        run_name=cluster_cost.run.name,
        message=status_message(cluster_cost.cluster),
        spent=SpentPayload.model_validate(cluster_cost.spent),
    )


def _cluster(cluster: Cluster, ledger: Sequence[LaunchTry], *, now: datetime) -> ClusterPayload:
    others = ("object", "message", "spent", "offers")
    names = [name for name in ClusterPayload.model_fields if name not in others]
    return ClusterPayload(
        **{name: getattr(cluster, name) for name in names},
        message=status_message(cluster),
        spent=SpentPayload.model_validate(cost.of_cluster(cluster, now=now)),
        offers=[
            OfferPayload.model_validate(each) for each in ledger if each.cluster_id == cluster.id
        ],
    )
