"""Runners: machines that execute attempts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class Runner(Base):
    """A registered runner; it executes runs of the project of its token."""

    __tablename__ = "runners"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    slots: Mapped[int]
    """Number of trainers at once."""
    hostname: Mapped[str]
    draining: Mapped[bool]
    """True while it stops: it claims no attempts."""
    lease_until: Mapped[datetime]
    registered_at: Mapped[datetime]
