"""Payloads of clusters, of the offers tried for them, and of orphaned clusters."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.costs import AllowancePayload, CloudExclusionPayload, SpentPayload
from hillclimb.protocol.payloads.statuses import ClusterState


class MachinePayload(Payload):
    """The machines of a cluster or of an offer."""

    infra: str | None
    region: str | None
    sku: str | None
    hourly_usd: float | None
    """Price of all nodes together; null while it is not known."""


class OfferPayload(MachinePayload):
    """One try to rent machines."""

    at: datetime
    launch: int
    infra: str
    seconds: float | None
    outcome: str
    error_class: str | None
    message: str | None


class ClusterFacts(MachinePayload):
    """A cluster without its offers and its run."""

    object: Literal["cluster"] = "cluster"
    id: str
    name: str
    state: ClusterState
    cause: str | None
    message: str | None
    """Reasons for its end and for its present state."""
    num_nodes: int
    created_at: datetime
    running_at: datetime | None
    terminated_at: datetime | None
    spent: SpentPayload


class ClusterPayload(ClusterFacts):
    """One cluster of a run, with the offers that were tried for it."""

    attempt_id: str
    wall_limit_at: datetime | None
    offers: list[OfferPayload]


class ClusterList(Payload):
    """The clusters of a run, oldest first, and their cost together."""

    object: Literal["list"] = "list"
    data: list[ClusterPayload]
    spent: SpentPayload


class ProjectClusterPayload(ClusterFacts):
    """One cluster of a project."""

    run_id: str
    run_name: str


class ProjectClusters(Payload):
    """The clusters that a project rents now, and their cost."""

    object: Literal["list"] = "list"
    data: list[ProjectClusterPayload]
    """Clusters that are not known to be terminated, newest first."""
    past: list[ProjectClusterPayload]
    """The newest terminated clusters."""
    spent: SpentPayload
    """The cost of all clusters ever."""
    hourly_usd: float | None
    """Price of all clusters billed now; null while a price is not known."""
    budget: AllowancePayload | None
    max_clusters: int
    exclusions: list[CloudExclusionPayload]
    warning: str | None
    """A sentence when no worker checks the project's clusters; null otherwise."""


class OrphanPayload(Payload):
    """A cluster with this service's tag that belongs to no run."""

    name: str
    first_seen_at: datetime
    """Time of the cluster sweep that first saw it."""
    ends_at: datetime | None
    """Time at which the cluster sweep terminates it; null in a dry run
    (`HILLCLIMB_REAP_DRY_RUN`)."""
    terminate_requested_at: datetime | None
    """Time of the request to terminate it: the next cluster sweep does."""
    terminate_requested_by: str | None


class OrphanList(Payload):
    """The orphaned clusters; listing them terminates none."""

    object: Literal["list"] = "list"
    reaps_dry: bool
    data: list[OrphanPayload]
