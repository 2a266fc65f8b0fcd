"""The ledger of issues of a project."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Issue(Created, Base):
    """A way in which policies fail, with the evaluations that show it before and after.

    It holds no figures: shares, test and status are computed from the outcomes.
    """

    __tablename__ = "issues"
    __table_args__ = (
        UniqueConstraint("project_id", "number"),
        Index("ix_issues_page", "project_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    number: Mapped[int]
    """From 1 in the project."""
    title: Mapped[str]
    severity: Mapped[str]
    description: Mapped[str]
    impact: Mapped[str]
    symptom: Mapped[str]
    """One of `hillclimb.stats.trajectories.symptoms.SYMPTOMS`."""
    env_key: Mapped[str | None]
    """Null: all environments."""
    decoding: Mapped[str | None]
    """Null: the first that both evaluations have."""
    baseline_run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    baseline_step: Mapped[int]
    after_run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"), index=True)
    after_step: Mapped[int | None]
    created_by: Mapped[str]
    updated_at: Mapped[datetime]
    closed_at: Mapped[datetime | None]
    closed_by: Mapped[str | None]
    resolution: Mapped[str | None]
    """What the person who closed it wrote."""
