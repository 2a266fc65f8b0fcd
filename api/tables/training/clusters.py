"""Clusters rented for attempts, their launch tries, price quotes and budgets."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Deployment(Created, Base):
    """The only row has the tag that is part of the names of this service's clusters."""

    __tablename__ = "deployments"

    id: Mapped[str] = mapped_column(primary_key=True)
    tag: Mapped[str] = mapped_column(unique=True)


class Cluster(Created, Base):
    """A cluster, identified by its name; the row is written before any launch request."""

    __tablename__ = "clusters"
    __table_args__ = (
        Index("ix_clusters_due", "due_at", postgresql_where=text("due_at IS NOT NULL")),
        Index("ix_clusters_project_id_created_at", "project_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    attempt_id: Mapped[str] = mapped_column(ForeignKey("attempts.id"), unique=True)
    name: Mapped[str] = mapped_column(unique=True)
    state: Mapped[str]
    """`pending`, `provisioning`, `running`, `terminating` or `terminated`."""
    cause: Mapped[str | None]
    """End reason, where the cluster itself was the cause."""
    message: Mapped[str | None]
    status_reason: Mapped[str | None]
    """Why it waits, by the newest check; null while it runs and once it is terminated."""
    bootstrap_nonce: Mapped[str | None]
    """Nonce of the job that exchanged the bootstrap token: it may repeat the request, another job
    may not."""
    bootstrapped_members: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The process that received the secrets, by the rank of its node: another gets none."""
    api_unreachable_at: Mapped[datetime | None]
    """Last time that it was running while no API process could send its node the plan."""
    node_beat: Mapped[int | None]
    """Number of the newest heartbeat of its first node that was read from the blob store."""

    request_id: Mapped[str | None]
    """Id of the current launch at the API server: a shortcut, the name is authoritative."""
    launch_requested_at: Mapped[datetime | None]
    """Committed before the launch is requested."""
    launch_tries: Mapped[int] = mapped_column(default=0)
    job_id: Mapped[int | None]
    jobs_requested_at: Mapped[datetime | None]
    polls_without_job: Mapped[int] = mapped_column(default=0)
    """Consecutive job lists without our job since its node's last heartbeat."""

    num_nodes: Mapped[int]
    infra: Mapped[str | None]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    hourly_usd: Mapped[float | None]
    """Price of all nodes together; null while unknown."""
    billed_from: Mapped[datetime | None]
    """First report of its machines: they are billed during set-up too."""
    running_at: Mapped[datetime | None]
    max_hours: Mapped[float]
    """Maximum lifetime, by the spec."""
    wall_limit_at: Mapped[datetime | None]
    """When it is terminated in any case."""

    observed_state: Mapped[str | None]
    """Its state by the newest successful sweep; null: it did not exist."""
    seen_at: Mapped[datetime | None]
    """Time of that sweep."""
    missed_polls: Mapped[int] = mapped_column(default=0)
    """Consecutive successful sweeps without it since its node's last heartbeat; a failed sweep does
    not count."""
    unhealthy_since: Mapped[datetime | None]
    """First of the consecutive sweeps in which it exists but is not up."""
    terminating_at: Mapped[datetime | None]
    """When its termination began."""
    end_warned_at: Mapped[datetime | None]
    """When its run got the warning that it is not terminated."""
    termination_requested_at: Mapped[datetime | None]
    termination_request_id: Mapped[str | None]
    """The newest termination request: its error is read while the cluster still exists."""
    terminated_at: Mapped[datetime | None]

    epoch: Mapped[int] = mapped_column(default=0)
    """Rises with every lease: a write under an older epoch is refused."""
    lease_until: Mapped[datetime | None]
    due_at: Mapped[datetime | None]
    """When it is checked again; null once it is terminated."""


class LaunchTry(Base):
    """One launch try, as the provisioner reported it: a row of the provisioning ledger."""

    __tablename__ = "offers"

    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"), primary_key=True)
    launch: Mapped[int] = mapped_column(primary_key=True)
    """Number of the cluster's launch, from 1."""
    number: Mapped[int] = mapped_column(primary_key=True)
    """Its place among the tries of that launch, from 1."""
    at: Mapped[datetime]
    """When it was reported."""
    seconds: Mapped[float | None]
    infra: Mapped[str]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    hourly_usd: Mapped[float | None]
    outcome: Mapped[str]
    """`up`, `refused`, `ineligible` or `failed`."""
    error_class: Mapped[str | None]
    message: Mapped[str | None]


class OrphanedCluster(Base):
    """A cluster with our tag and without a live row; no other process terminates it."""

    __tablename__ = "orphaned_clusters"

    name: Mapped[str] = mapped_column(primary_key=True)
    first_seen_at: Mapped[datetime]
    terminate_requested_at: Mapped[datetime | None]
    """When an operator requested its termination without the grace period."""
    terminate_requested_by: Mapped[str | None]
    last_terminated_at: Mapped[datetime | None]
    """When its termination was last requested from the cloud."""


class PriceQuote(Base):
    """The price of one node of a kind by its cloud's catalog; plans and submissions request it."""

    __tablename__ = "price_quotes"

    key: Mapped[str] = mapped_column(primary_key=True)
    """The candidate, reduced to the fields that determine the price."""
    candidate: Mapped[dict[str, Any]]
    asked_at: Mapped[datetime]
    """When it was last requested."""
    lease_until: Mapped[datetime | None]
    """End of the lease of the worker that queries the clouds."""
    fetched_at: Mapped[datetime | None]
    """When the clouds last responded."""
    offers: Mapped[list[dict[str, Any]] | None]
    """`infra`, `sku` and `hourly_usd` of each; null before the first response."""
    problem: Mapped[str | None]
    """Error of the newest query; null when it succeeded."""


class CloudExclusion(Created, Base):
    """Machines that are tried last until a time, because a launch failed; for all projects."""

    __tablename__ = "cloud_exclusions"

    id: Mapped[str] = mapped_column(primary_key=True)
    infra: Mapped[str]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    reason: Mapped[str]
    until: Mapped[datetime]


class ProjectLimits(Base):
    """Limits of all runs of a project together; without a row the defaults."""

    __tablename__ = "project_limits"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    usd: Mapped[float | None]
    hours: Mapped[float | None]
    max_clusters: Mapped[int]
    """Maximum number of clusters at once."""
    since: Mapped[datetime]
    """Spending before this does not count."""
    set_by: Mapped[str]


class BudgetExtension(Created, Base):
    """An extension of a run's budget beyond its spec."""

    __tablename__ = "budget_extensions"

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    usd: Mapped[float]
    hours: Mapped[float]
    granted_by: Mapped[str]
