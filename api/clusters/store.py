"""Every query of clusters; each takes the scope it may see."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from api.clusters.names import cluster_name, deployment_tag
from api.ids import new_id
from api.tables import Attempt, Cluster, Offer, ProjectLimits, Run
from trainer.contract.clusters.spec import SkyPilotSpec

MAX_CLUSTERS = 8
"""Of a project at once, unless somebody set another number."""


class ClusterState(StrEnum):
    """Where a cluster stands, as far as we have got with it; `gone` absorbs."""

    WANTED = "wanted"
    """Nothing has been asked for, or nobody knows whether it was."""
    LAUNCHING = "launching"
    """A request is under way."""
    UP = "up"
    ENDING = "ending"
    """It is to go, whatever else happens, until nothing of it is left."""
    GONE = "gone"


def speaks_by_notes() -> ColumnElement[bool]:
    """A condition on `Run`: its nodes cannot reach the API, and have their plan left for them."""
    reachable: ColumnElement[str] = Run.spec["backend"]["skypilot"]["api_reachable"].astext
    return reachable.is_not_distinct_from("false")


def create(
    session: Session, run: Run, attempt: Attempt, spec: SkyPilotSpec, *, now: datetime
) -> Cluster:
    """Write down that an attempt wants a cluster, before anybody is asked for one."""
    cluster = Cluster(
        id=new_id("clu"),
        project_id=run.project_id,
        run_id=run.id,
        attempt_id=attempt.id,
        name=cluster_name(deployment_tag(session), run.id, attempt.number),
        state=ClusterState.WANTED.value,
        num_nodes=spec.num_nodes,
        max_hours=spec.max_hours,
        launch_tries=0,
        num_unseen=0,
        num_jobless=0,
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
    """Return the run's clusters that are not known to be gone: at most one by construction."""
    query = select(Cluster).where(Cluster.run_id == run_id)
    query = query.where(Cluster.state != ClusterState.GONE.value)
    return session.scalars(query.execution_options(populate_existing=True)).all()


def num_live(session: Session, project_id: str) -> int:
    """Return how many clusters a project has, or is about to have."""
    query = select(func.count()).select_from(Cluster).where(Cluster.project_id == project_id)
    return session.scalar(query.where(Cluster.state != ClusterState.GONE.value)) or 0


def max_clusters(session: Session, project_id: str) -> int:
    """Return how many clusters a project may have at once."""
    limits = session.get(ProjectLimits, project_id)
    return MAX_CLUSTERS if limits is None else limits.max_clusters


def num_free(session: Session, project_id: str) -> int:
    """Return how many more clusters a project may have now."""
    return max(0, max_clusters(session, project_id) - num_live(session, project_id))


def offers_of(session: Session, cluster_ids: Sequence[str]) -> Sequence[Offer]:
    """Return what was tried for these clusters, in order."""
    query = select(Offer).where(Offer.cluster_id.in_(cluster_ids))
    query = query.order_by(Offer.cluster_id, Offer.launch, Offer.number)
    return session.scalars(query).all()


def live_by_name(session: Session) -> dict[str, Cluster]:
    """Return every cluster of the service that is not gone, by name."""
    query = select(Cluster).where(Cluster.state != ClusterState.GONE.value)
    return {cluster.name: cluster for cluster in session.scalars(query)}


def wake(cluster: Cluster, *, now: datetime) -> None:
    """Look at a cluster now: what its attempt is has changed."""
    if cluster.state != ClusterState.GONE.value:
        cluster.due_at = now
