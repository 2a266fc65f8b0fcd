"""Machines rented for an attempt, what was tried to get them, and what they may cost."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Deployment(Created, Base):
    """One row: the tag in the names of everything that this service rents."""

    __tablename__ = "deployments"

    id: Mapped[str] = mapped_column(primary_key=True)
    tag: Mapped[str] = mapped_column(unique=True)


class Cluster(Created, Base):
    """One cluster, asked for by name; the row is written before anything is asked."""

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
    """`wanted`, `launching`, `up`, `ending` or `gone`."""
    cause: Mapped[str | None]
    """Why it ended, where the cluster itself was the reason."""
    message: Mapped[str | None]
    waits_for: Mapped[str | None]
    """What the newest look left it waiting for; null while it is at work, and once it is gone."""
    exchange_nonce: Mapped[str | None]
    """The job that has exchanged the cluster's code for the attempt's token: it may ask again,
    another may not."""
    exchange_members: Mapped[dict[str, Any]] = mapped_column(default=dict)
    """The process that was given the secrets, by the rank of its node: another may not ask."""
    shut_out_at: Mapped[datetime | None]
    """When it was up last and no API process was there to give its node the plan."""
    node_beat: Mapped[int | None]
    """The newest beat of its first node that was read from the blob store."""

    request_id: Mapped[str | None]
    """The launch under way, as the API server knows it: a shortcut, the name is the truth."""
    launch_asked_at: Mapped[datetime | None]
    """Committed before a launch is called."""
    launch_tries: Mapped[int] = mapped_column(default=0)
    job_id: Mapped[int | None]
    jobs_asked_at: Mapped[datetime | None]
    num_jobless: Mapped[int] = mapped_column(default=0)
    """Answers in a row, since its node was last heard, that had no job of ours."""

    num_nodes: Mapped[int]
    infra: Mapped[str | None]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    hourly_usd: Mapped[float | None]
    """Of all nodes together; null while nobody knows."""
    paid_from: Mapped[datetime | None]
    """When we first heard that its machines were there: while they are set up they are paid too."""
    up_at: Mapped[datetime | None]
    max_hours: Mapped[float]
    """Longest life, by the spec."""
    wall_limit_at: Mapped[datetime | None]
    """When it is ended, whatever it does."""

    seen_state: Mapped[str | None]
    """By the newest sweep that got an answer; null: it was not there."""
    seen_at: Mapped[datetime | None]
    """When that sweep was."""
    num_unseen: Mapped[int] = mapped_column(default=0)
    """Sweeps in a row, since its node was heard, that got an answer and did not find it;
    unreachable is not absent."""
    unsound_since: Mapped[datetime | None]
    """Since when sweeps have found it, but not up."""
    ending_at: Mapped[datetime | None]
    """Since when it is to go."""
    end_warned_at: Mapped[datetime | None]
    """When its run was told that it does not go."""
    down_asked_at: Mapped[datetime | None]
    down_request_id: Mapped[str | None]
    """The newest request to end it: asked for its error while the cluster is still there."""
    gone_at: Mapped[datetime | None]

    epoch: Mapped[int] = mapped_column(default=0)
    """Rises with every lease: a write under an older epoch is refused."""
    lease_until: Mapped[datetime | None]
    due_at: Mapped[datetime | None]
    """When it is looked at again; null once it is gone."""


class Offer(Base):
    """One try at getting machines, as the provisioner reported it: the provisioning ledger."""

    __tablename__ = "offers"

    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id"), primary_key=True)
    launch: Mapped[int] = mapped_column(primary_key=True)
    """Which launch of the cluster, from 1."""
    number: Mapped[int] = mapped_column(primary_key=True)
    """Its place among what that launch tried, from 1."""
    at: Mapped[datetime]
    """When we heard of it."""
    seconds: Mapped[float | None]
    infra: Mapped[str]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    hourly_usd: Mapped[float | None]
    outcome: Mapped[str]
    """`up`, `refused`, `ineligible` or `failed`."""
    error_class: Mapped[str | None]
    message: Mapped[str | None]


class StrayCluster(Base):
    """A cluster with our tag that no live row knows, and since when: nobody else ends it."""

    __tablename__ = "stray_clusters"

    name: Mapped[str] = mapped_column(primary_key=True)
    met_at: Mapped[datetime]
    end_asked_at: Mapped[datetime | None]
    """Since when an operator wants it ended now, without the grace."""
    end_asked_by: Mapped[str | None]
    end_told_at: Mapped[datetime | None]
    """When its cloud was last told to end it."""


class PriceQuote(Base):
    """What one node of a kind costs by its cloud's catalog, asked for by plans and submissions."""

    __tablename__ = "price_quotes"

    key: Mapped[str] = mapped_column(primary_key=True)
    """The candidate that it is for, without what does not change the price."""
    candidate: Mapped[dict[str, Any]]
    asked_at: Mapped[datetime]
    """When somebody last wanted to know."""
    lease_until: Mapped[datetime | None]
    """Until when nobody else asks the clouds."""
    fetched_at: Mapped[datetime | None]
    """When the clouds last answered."""
    offers: Mapped[list[dict[str, Any]] | None]
    """`infra`, `sku` and `hourly_usd` of each; null before the first answer."""
    problem: Mapped[str | None]
    """Why the newest try got no answer; null when it got one."""


class CloudExclusion(Created, Base):
    """What is not asked again for a while, learnt from an offer that failed; the operator's."""

    __tablename__ = "cloud_exclusions"

    id: Mapped[str] = mapped_column(primary_key=True)
    infra: Mapped[str]
    region: Mapped[str | None]
    sku: Mapped[str | None]
    reason: Mapped[str]
    until: Mapped[datetime]


class ProjectLimits(Base):
    """What all runs of a project may use together; absent: the defaults."""

    __tablename__ = "project_limits"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    usd: Mapped[float | None]
    hours: Mapped[float | None]
    max_clusters: Mapped[int]
    """Clusters at once."""
    since: Mapped[datetime]
    """Spending before this does not count."""
    set_by: Mapped[str]


class BudgetExtension(Created, Base):
    """More budget for a run than its spec gives."""

    __tablename__ = "budget_extensions"

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    usd: Mapped[float]
    hours: Mapped[float]
    granted_by: Mapped[str]
