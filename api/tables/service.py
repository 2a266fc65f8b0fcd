"""The service's records about itself, for all projects: its schema's revisions, its sweeps."""

from __future__ import annotations

from datetime import datetime

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
