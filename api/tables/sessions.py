"""One-time codes that let a browser in."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class SessionCode(Created, Base):
    """A code that a key holder minted for a browser; it works once and not for long."""

    __tablename__ = "session_codes"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"))
    expires_at: Mapped[datetime] = mapped_column(index=True)
