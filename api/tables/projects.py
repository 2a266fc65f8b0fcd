"""Projects, their API keys with grants, and session codes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import String

from api.tables.base import Base, Created


class Project(Created, Base):
    """A tenant: every other row belongs to exactly one."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class ApiKey(Created, Base):
    """An API key, of which only the first characters and the SHA-256 are stored."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(index=True)
    sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String()))
    revoked_at: Mapped[datetime | None]


class RunGrant(Created, Base):
    """Runs and extensions that the owner of a key may spend; a key without a row is not limited."""

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


class SessionCode(Created, Base):
    """A one-time code by which a key's owner signs in with a browser; short-lived."""

    __tablename__ = "session_codes"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime] = mapped_column(index=True)
