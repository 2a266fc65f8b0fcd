"""Queries of clusters; each takes the scope that it may read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from api.clusters.names import cluster_name, deployment_tag
from api.tables import Attempt, Cluster, LaunchTry, ProjectLimits, Run
from api.tables.ids import new_id
from hillclimb.protocol.payloads.statuses import ClusterState as ClusterState
from hillclimb.spec.backend.skypilot import SkyPilotSpec

MAX_CLUSTERS = 8
"""Default limit of a project's clusters at once."""


def uses_blob_channel() -> ColumnElement[bool]:
    """A condition on `Run`: its nodes cannot reach the API and use the blob store instead."""
    reachable: ColumnElement[str] = Run.spec["backend"]["skypilot"]["api_reachable"].astext
    return reachable.is_not_distinct_from("false")


def create(
    session: Session, run: Run, attempt: Attempt, spec: SkyPilotSpec, *, now: datetime
) -> Cluster:
    """Create the pending cluster of an attempt, before any launch request."""
    cluster = Cluster(
        id=new_id("clu"),
        project_id=run.project_id,
        run_id=run.id,
        attempt_id=attempt.id,
        name=cluster_name(deployment_tag(session), run.id, attempt.number),
        state=ClusterState.PENDING.value,
        num_nodes=spec.num_nodes,
        max_hours=spec.max_hours,
        launch_tries=0,
        missed_polls=0,
        polls_without_job=0,
        epoch=0,
        due_at=now,
    )
    session.add(cluster)
    return cluster


def of_attempt(session: Session, attempt_id: str) -> Cluster | None:
    """Return the attempt's cluster; null for an attempt on a runner."""
    query = select(Cluster).where(Cluster.attempt_id == attempt_id)
    return session.scalar(query.execution_options(populate_existing=True))


def of_run(session: Session, run_id: str) -> Sequence[Cluster]:
    """Return the run's clusters, oldest first."""
    return session.scalars(
        select(Cluster).where(Cluster.run_id == run_id).order_by(Cluster.created_at, Cluster.id)
    ).all()


def live_of_run(session: Session, run_id: str) -> Sequence[Cluster]:
    """Return the run's clusters that are not terminated: at most one by construction."""
    query = select(Cluster).where(Cluster.run_id == run_id)
    query = query.where(Cluster.state != ClusterState.TERMINATED.value)
    return session.scalars(query.execution_options(populate_existing=True)).all()


def num_live(session: Session, project_id: str) -> int:
    """Return how many clusters of a project are not terminated, pending ones included."""
    query = select(func.count()).select_from(Cluster).where(Cluster.project_id == project_id)
    return session.scalar(query.where(Cluster.state != ClusterState.TERMINATED.value)) or 0


def max_clusters(session: Session, project_id: str) -> int:
    """Return the project's limit of clusters at once."""
    limits = session.get(ProjectLimits, project_id)
    return MAX_CLUSTERS if limits is None else limits.max_clusters


def num_free(session: Session, project_id: str) -> int:
    """Return how many more clusters the project's limit allows now."""
    return max(0, max_clusters(session, project_id) - num_live(session, project_id))


def launch_tries_of(session: Session, cluster_ids: Sequence[str]) -> Sequence[LaunchTry]:
    """Return the launch tries of these clusters, in order."""
    query = select(LaunchTry).where(LaunchTry.cluster_id.in_(cluster_ids))
    query = query.order_by(LaunchTry.cluster_id, LaunchTry.launch, LaunchTry.number)
    return session.scalars(query).all()


def live_by_name(session: Session) -> dict[str, Cluster]:
    """Return every cluster of the service that is not terminated, by name."""
    query = select(Cluster).where(Cluster.state != ClusterState.TERMINATED.value)
    return {cluster.name: cluster for cluster in session.scalars(query)}


def wake(cluster: Cluster, *, now: datetime) -> None:
    """Make a cluster due now: its attempt has changed."""
    if cluster.state != ClusterState.TERMINATED.value:
        cluster.due_at = now
