"""Who owns what: projects and the keys that act for them."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import String

from api.tables.base import Base, Created


class Project(Created, Base):
    """A tenant: everything else belongs to exactly one."""

    __tablename__ = "projects"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)


class ApiKey(Created, Base):
    """A random 256-bit token, known here only by its first characters and its SHA-256."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    name: Mapped[str]
    prefix: Mapped[str] = mapped_column(index=True)
    sha256: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[str]] = mapped_column(ARRAY(String()))
    revoked_at: Mapped[datetime | None]
