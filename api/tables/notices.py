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
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
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
    previous_key_id: Mapped[str | None]
    previous_ciphertext: Mapped[bytes | None] = mapped_column(LargeBinary)
    previous_until: Mapped[datetime | None]
    """Until then the secret before the rotation signs every message too."""
    is_enabled: Mapped[bool]
    disabled_reason: Mapped[str | None]
    failing_since: Mapped[datetime | None]
    """Time of the first failed delivery since the last one that succeeded."""
    created_by: Mapped[str]
    updated_at: Mapped[datetime]


class SlackThread(Created, Base):
    """A run's live message in a channel; the messages about its events reply to it."""

    __tablename__ = "slack_threads"
    __table_args__ = (Index("ix_slack_threads_next_update_at", "next_update_at"),)

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    channel: Mapped[str] = mapped_column(primary_key=True)
    """As the spec or the person who watches names it."""
    watcher: Mapped[str | None]
    """Id of the key of the person who has the channel watch; null for the channel of the spec."""
    channel_id: Mapped[str | None]
    """As Slack names it; null until the message is posted."""
    ts: Mapped[str | None]
    """Slack's id of the message within the channel; null until it is posted."""
    seq: Mapped[int] = mapped_column(default=0, server_default="0")
    """`seq` of the run's newest event that the message includes."""
    digest: Mapped[str | None]
    """SHA-256 of the message as it was last sent; an equal one is not sent again."""
    next_update_at: Mapped[datetime | None] = mapped_column(server_default=func.now())
    """Not updated before; null once the message shows the run's end, or Slack refused it."""
    error: Mapped[str | None]
    """Why Slack did not take the last update."""


class SlackLink(Created, Base):
    """A Slack user who acts as the owner of an API key."""

    __tablename__ = "slack_links"

    team_id: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)


class SlackLinkCode(Created, Base):
    """A one-time code by which a key's owner links a Slack user; short-lived."""

    __tablename__ = "slack_link_codes"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), index=True)
    key_id: Mapped[str] = mapped_column(ForeignKey("api_keys.id"), index=True)
    expires_at: Mapped[datetime] = mapped_column(index=True)


class SlackRequest(Created, Base):
    """A signed request of Slack: acknowledged at once, acted on and answered afterwards."""

    __tablename__ = "slack_requests"
    __table_args__ = (
        Index(
            "ix_slack_requests_due",
            "next_try_at",
            postgresql_where=text("state IN ('received', 'answered')"),
        ),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    project_id: Mapped[str | None] = mapped_column(ForeignKey("projects.id"), index=True)
    """Project of the linked person; null for a person without a link."""
    signature: Mapped[str] = mapped_column(unique=True)
    """A second request with the same signature is a replay."""
    dedupe_key: Mapped[str | None] = mapped_column(unique=True)
    """Of a button: message, action and value, so that a double click acts once; of an event, its
    id, because Slack repeats events."""
    kind: Mapped[str]
    """`command`, `action`, `view` or `event`."""
    payload: Mapped[dict[str, Any]]
    """What acting on it needs, without the verification token."""
    state: Mapped[str] = mapped_column(default="received")
    """`received`, `answered` (the reply is not posted yet), `done` or `dead`."""
    num_attempts: Mapped[int] = mapped_column(default=0)
    next_try_at: Mapped[datetime] = mapped_column(server_default=func.now())
    lease_until: Mapped[datetime | None]
    spec: Mapped[dict[str, Any] | None]
    """The spec of `run` that its plan showed, which the confirmation submits."""
    reply: Mapped[dict[str, Any] | None]
    error: Mapped[str | None]
