"""The grant of an agent key."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class RunGrant(Created, Base):
    """What the owner of a key may spend; a key without a row is not limited here."""

    __tablename__ = "run_grants"
    __table_args__ = (
        CheckConstraint("num_runs_used >= 0", name="num_runs_used"),
        CheckConstraint("extra_usd_used >= 0", name="extra_usd_used"),
        CheckConstraint("extra_hours_used >= 0", name="extra_hours_used"),
    )

    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    num_runs: Mapped[int]
    """Runs that the key may create: submitted, forked, swept, or as cells of campaigns."""
    num_runs_used: Mapped[int] = mapped_column(default=0)
    extra_usd: Mapped[float] = mapped_column(default=0.0)
    """Dollars by which the key may extend budgets of runs, all extensions together."""
    extra_usd_used: Mapped[float] = mapped_column(default=0.0)
    extra_hours: Mapped[float] = mapped_column(default=0.0)
    """Hours by which the key may extend budgets of runs, all extensions together."""
    extra_hours_used: Mapped[float] = mapped_column(default=0.0)
    created_by: Mapped[str]
