"""The service's records about itself, for all projects: schema revisions, sweeps, acceptances."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class SchemaRevision(Created, Base):
    """A migration that this database has gone through; `migrations/env.py` writes it.

    Code that was written for one of them can read a newer schema too, because migrations only add.
    One that does more deletes the revisions whose code it shuts out.
    """

    __tablename__ = "schema_revisions"

    revision: Mapped[str] = mapped_column(primary_key=True)


class Sweep(Base):
    """A periodic task of the worker; a long gap after its mark shows that no worker ran."""

    __tablename__ = "sweeps"

    name: Mapped[str] = mapped_column(primary_key=True)
    completed_at: Mapped[datetime]
    """When a worker last completed it."""


class Acceptance(Created, Base):
    """Evidence of `hillclimb accept`: a path was seen to work on this installation."""

    __tablename__ = "acceptances"
    __table_args__ = (UniqueConstraint("target", "subject"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    target: Mapped[str]
    """Name of the ladder of checks."""
    subject: Mapped[str]
    """The GPU, machines or address that was tried."""
    paths: Mapped[list[str]]
    """The experimental paths that need no flag for it; may be empty."""
    versions: Mapped[dict[str, str]]
    observations: Mapped[list[dict[str, Any]]]
    """Each check with what was seen, in order."""
    run: Mapped[str | None]
    """Id of the run that was the check, if one was; the evidence outlives it."""
    cost_usd: Mapped[float | None]
    """Upper bound of what the checks cost; null: unknown."""
    recorded_by: Mapped[str]
