"""Payloads of webhooks and their deliveries."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from hillclimb.protocol.payloads.base import Payload


class WebhookPayload(Payload):
    """A webhook, without its signing secret."""

    object: Literal["webhook"] = "webhook"
    id: str
    url: str
    """All of it to admins; to others only the host, as `https://HOST/…`."""
    description: str
    events: list[str]
    """Types of the events that it receives; empty: all."""
    is_enabled: bool
    disabled_reason: str | None
    failing_since: datetime | None
    """Time of the first failed delivery since the last one that succeeded."""
    previous_until: datetime | None
    """Until then the secret before the last rotation signs every message too; null: none does."""
    created_by: str
    created_at: datetime
    updated_at: datetime


class NewWebhook(WebhookPayload):
    """A webhook with its new signing secret, which no other response has."""

    secret: str = Field(repr=False)
    """`whsec_` and 32 bytes in base64: libraries of Standard Webhooks check signatures with it."""


class WebhookList(Payload):
    """All webhooks of the project, oldest first."""

    object: Literal["list"] = "list"
    data: list[WebhookPayload]


class DeletedWebhook(Payload):
    """A webhook that was deleted, with its deliveries."""

    id: str
    deleted: bool


class WebhookTest(Payload):
    """The result of a test delivery."""

    delivered: bool
    status_code: int | None
    """Status of the response; null without one."""
    error: str | None


class DeliveryPayload(Payload):
    """A message to a webhook, and its last try."""

    object: Literal["delivery"] = "delivery"
    id: int
    message_id: str
    """The header `webhook-id`: the same in every try."""
    event: str
    run_id: str
    state: Literal["pending", "delivered", "skipped", "dead"]
    num_attempts: int
    status_code: int | None
    error: str | None
    created_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None
    """Null once it is not tried again."""


class DeliveryList(Payload):
    """One page of deliveries, newest first; `before` the last one's id is the next page."""

    object: Literal["list"] = "list"
    data: list[DeliveryPayload]
    has_more: bool
