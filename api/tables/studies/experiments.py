"""Experiments and their runs; the runs of a sweep are cells, as those of campaigns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class Experiment(Created, Base):
    """A hypothesis with the runs that test it."""

    __tablename__ = "experiments"
    __table_args__ = (
        UniqueConstraint("project_id", "key"),
        Index("ix_experiments_page", "project_id", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    key: Mapped[str]
    """Version label, as in `v0.2.4`."""
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("experiments.id"), index=True)
    text: Mapped[dict[str, Any]]
    """`api.admission.experiments.request.ExperimentText`: what people wrote. No number of a result
    is in it."""
    created_by: Mapped[str]
    updated_at: Mapped[datetime]


class ExperimentRun(Base):
    """The place of a run in an experiment: its configuration and seed."""

    __tablename__ = "experiment_runs"
    __table_args__ = (
        ForeignKeyConstraint(
            ["project_id", "digest"], ["campaign_cells.project_id", "campaign_cells.digest"]
        ),
        UniqueConstraint("experiment_id", "run_id"),
        UniqueConstraint("experiment_id", "digest"),
        Index("ix_experiment_runs_run", "run_id"),
        Index("ix_experiment_runs_cell", "project_id", "digest"),
    )

    experiment_id: Mapped[str] = mapped_column(ForeignKey("experiments.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    """From 1, in the order of addition."""
    project_id: Mapped[str]
    run_id: Mapped[str | None] = mapped_column(ForeignKey("runs.id"))
    """Null for a cell of a sweep, whose run is its cell's."""
    digest: Mapped[str | None]
    """The cell of a sweep; null for a run that somebody added."""
    role: Mapped[str]
    """`baseline` or `variant`."""
    arm: Mapped[str]
    """Label of its configuration; runs of one arm are seed replicates."""
    seed: Mapped[int]
    """`schedule.seed` of its spec."""
    settings: Mapped[dict[str, Any] | None]
    """Values by dotted key that make the cell of a sweep; null for a run that somebody added."""
