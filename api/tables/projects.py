"""Projects, their API keys and session codes."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
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


class SessionCode(Created, Base):
    """A one-time code by which a key's owner signs in with a browser; short-lived."""

    __tablename__ = "session_codes"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime] = mapped_column(index=True)
