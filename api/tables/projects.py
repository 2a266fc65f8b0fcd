"""Projects, their API keys, session codes, secrets and defaults."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, LargeBinary
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


class ProjectSecret(Created, Base):
    """A secret of a project: its value is stored encrypted, and no response has it."""

    __tablename__ = "project_secrets"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    key_id: Mapped[str]
    """The master key that decrypts it."""
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    version: Mapped[int]
    """Number of the value: 1 is the first."""
    created_by: Mapped[str]
    updated_by: Mapped[str]
    updated_at: Mapped[datetime]
    used_at: Mapped[datetime | None]
    """When an attempt last received it."""


class ProjectDefaultsRecord(Base):
    """`hillclimb.spec.rules.project_defaults.ProjectDefaults` of a project."""

    __tablename__ = "project_defaults"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    defaults: Mapped[dict[str, Any]]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
