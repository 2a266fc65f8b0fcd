"""The service's records about itself, for all projects: the revisions of its schema."""

from __future__ import annotations

from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class SchemaRevision(Created, Base):
    """A migration that this database has gone through; `migrations/env.py` writes it.

    Code that was written for one of them can read a newer schema too, because migrations only add.
    One that does more deletes the revisions whose code it shuts out.
    """

    __tablename__ = "schema_revisions"

    revision: Mapped[str] = mapped_column(primary_key=True)
