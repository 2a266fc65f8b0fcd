"""Outgoing messages, stored in the transaction of their event and delivered later."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class OutboxMessage(Created, Base):
    """A message to deliver at least once; `dedupe_key` makes storing it twice harmless."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_due", "next_attempt_at", postgresql_where=text("state = 'pending'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    kind: Mapped[str]
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="pending")
    """`pending`, `delivered`, `skipped` (no bot token) or `dead` (too many failures)."""
    num_attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    error: Mapped[str | None]


class SlackThread(Created, Base):
    """The Slack message that starts a run's thread."""

    __tablename__ = "slack_threads"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    ts: Mapped[str]
