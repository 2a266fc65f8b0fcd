"""Campaigns and their cells; a cell belongs to the project, so that campaigns share its run."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Campaign(Created, Base):
    """Evaluations of several models on several datasets."""

    __tablename__ = "campaigns"
    __table_args__ = (Index("ix_campaigns_page", "project_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    spec: Mapped[dict[str, Any]]
    """`api.admission.campaigns.request.CampaignSpec` as it was sent."""
    created_by: Mapped[str]


class CampaignCell(Base):
    """One evaluation: a run, or the sentence that says why there is none."""

    __tablename__ = "campaign_cells"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    digest: Mapped[str] = mapped_column(primary_key=True)
    """SHA-256 of the run's spec without its name: equal evaluations are one cell."""
    spec: Mapped[dict[str, Any]]
    """The run's spec."""
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"), index=True)
    problem: Mapped[str | None]
    """Why the service refused the run; null where there is one."""
    num_launches: Mapped[int] = mapped_column(default=0)


class CampaignMember(Base):
    """The place of a cell in a campaign."""

    __tablename__ = "campaign_members"
    __table_args__ = (
        ForeignKeyConstraint(
            ["project_id", "digest"], ["campaign_cells.project_id", "campaign_cells.digest"]
        ),
        Index("ix_campaign_members_cell", "project_id", "digest"),
    )

    campaign_id: Mapped[str] = mapped_column(ForeignKey("campaigns.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 1, in the order of models, datasets and repeats."""
    project_id: Mapped[str]
    digest: Mapped[str]
    model: Mapped[str]
    dataset: Mapped[str | None]
    """Null: the tasks of the campaign's `base`."""
    repeat: Mapped[int]
    """From 1."""
