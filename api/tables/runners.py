"""Machines that carry attempts out."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, String, UniqueConstraint
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class Runner(Base):
    """A registered runner; it serves the runs of the project whose token it came with."""

    __tablename__ = "runners"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    slots: Mapped[int]
    """Trainers it runs at once."""
    kinds: Mapped[list[str]] = mapped_column(ARRAY(String), server_default="{train,eval}")
    """Kinds of runs it carries out; a version of the service that knows none leaves them out."""
    hostname: Mapped[str]
    draining: Mapped[bool]
    """True while it stops: it gets no new attempt."""
    lease_until: Mapped[datetime]
    registered_at: Mapped[datetime]
