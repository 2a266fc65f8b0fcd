"""Outgoing messages, stored in the transaction of their event and delivered later."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    Identity,
    Index,
    LargeBinary,
    String,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created


class OutboxMessage(Created, Base):
    """A message to deliver at least once; `dedupe_key` makes storing it twice harmless."""

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_due", "next_attempt_at", postgresql_where=text("state = 'pending'")),
        Index(
            "ix_outbox_webhook_id_id",
            "webhook_id",
            "id",
            postgresql_where=text("webhook_id IS NOT NULL"),
        ),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), index=True)
    webhook_id: Mapped[str | None] = mapped_column(ForeignKey("webhooks.id"))
    """The webhook that receives it; null: a message to Slack."""
    kind: Mapped[str]
    dedupe_key: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    state: Mapped[str] = mapped_column(default="pending")
    """`pending`, `delivered`, `skipped` (no bot token, or the webhook is disabled) or `dead` (too
    many failures)."""
    num_attempts: Mapped[int] = mapped_column(default=0)
    next_attempt_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    status_code: Mapped[int | None]
    """HTTP status of a webhook's last response."""
    error: Mapped[str | None]


class Webhook(Created, Base):
    """An address of a project that receives its events; its signing secret is encrypted."""

    __tablename__ = "webhooks"

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    url: Mapped[str]
    description: Mapped[str]
    events: Mapped[list[str]] = mapped_column(ARRAY(String()))
    """Types of the events that it receives; empty: every type that webhooks can receive."""
    key_id: Mapped[str]
    """The master key that decrypts the signing secret."""
    ciphertext: Mapped[bytes] = mapped_column(LargeBinary)
    is_enabled: Mapped[bool]
    disabled_reason: Mapped[str | None]
    failing_since: Mapped[datetime | None]
    """Time of the first failed delivery since the last one that succeeded."""
    created_by: Mapped[str]
    updated_at: Mapped[datetime]


class SlackThread(Created, Base):
    """The Slack message that starts a run's thread."""

    __tablename__ = "slack_threads"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    ts: Mapped[str]
