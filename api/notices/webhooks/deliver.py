"""Delivers webhooks' messages from the outbox: claims, renders, posts without a session, records.

At least once, in no particular order: an event's `seq` tells the order within a run. One message
of a webhook is under way at a time, so that a slow receiver delays its own messages alone.
"""

from __future__ import annotations

import json
import logging
import random
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from api.notices.webhooks.errors import NotDelivered
from api.notices.webhooks.network import post
from api.notices.webhooks.signing import signed_headers
from api.notices.webhooks.store import signing_secrets
from api.runs.journal import utc_now
from api.runs.outbox import (
    DEAD,
    DELIVERED,
    PENDING,
    SKIPPED,
    Claim,
    claim_next_of_webhooks,
    find_claimed,
)
from api.tables import OutboxMessage, Run, RunEvent, Webhook
from api.tables.access.secrets.errors import SecretUnreadable
from api.tables.access.secrets.keyring import Keyring
from api.tables.database import Database

BACKOFF_S = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Waits after each failed try, as Standard Webhooks recommends; then the message is dead."""
JITTER = 0.2
DISABLED_AFTER = timedelta(days=5)
"""A webhook is disabled when every delivery has failed for so long."""
GONE = 410
MAX_BODY_BYTES = 256_000
BUDGET_S = 20.0
"""A call starts no delivery after this time: the worker's task must end."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """Parts that delivery uses; `public_url` is the base of links."""

    database: Database
    keyring: Keyring
    public_url: str
    allows_loopback: bool = False
    clock: Callable[[], datetime] = utc_now
    rng: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A message with its address and the secrets that sign it."""

    url: str
    body: bytes
    secrets: tuple[str, ...] = field(repr=False)


def deliver_due_webhooks(delivery: WebhookDelivery, *, limit: int = 50) -> int:
    """Try up to `limit` due messages, and return the number of delivered ones."""
    owner, num_delivered = secrets.token_hex(8), 0
    until = delivery.clock() + timedelta(seconds=BUDGET_S)
    for _ in range(limit):
        if delivery.clock() >= until:
            break
        with delivery.database.transaction() as session:
            claim = claim_next_of_webhooks(session, owner=owner, now=delivery.clock())
        if claim is None:
            break
        num_delivered += _deliver(delivery, claim)
    return num_delivered


def send_test(delivery: WebhookDelivery, webhook: Webhook) -> int:
    """Send a message of the type `webhook.test` now and return the status; raises NotDelivered."""
    now = delivery.clock()
    body = _body("webhook.test", now, {"webhook": {"id": webhook.id}})
    signing = signing_secrets(delivery.keyring, webhook, now=now)
    ready = _Ready(url=webhook.url, body=body, secrets=signing)
    return _send(delivery, ready, f"msg_test_{secrets.token_hex(8)}")


def _deliver(delivery: WebhookDelivery, claim: Claim) -> bool:
    try:
        with delivery.database.transaction() as session:
            ready = _prepare(delivery, session, claim)
        if ready is None:
            _record(delivery, claim, state=SKIPPED, error="the webhook is disabled")
            return False
        status = _send(delivery, ready, f"msg_{claim.id}")
    except SecretUnreadable as error:
        _failed(delivery, claim, NotDelivered(str(error)))
    except NotDelivered as error:
        _failed(delivery, claim, error)
    else:
        _record(delivery, claim, state=DELIVERED, status_code=status)
        return True
    return False


def _prepare(delivery: WebhookDelivery, session: Session, claim: Claim) -> _Ready | None:
    webhook = session.get_one(Webhook, claim.payload["webhook_id"])
    if not webhook.is_enabled:
        return None
    run = session.get_one(Run, claim.run_id)
    seq = claim.payload["seq"]
    event = session.scalars(
        select(RunEvent).where(RunEvent.run_id == run.id, RunEvent.seq == seq)
    ).one()
    facts = {"id": run.id, "name": run.name, "status": run.status}
    facts["url"] = f"{delivery.public_url.rstrip('/')}/runs/{run.id}"
    data = {"run": facts, "seq": seq, "event": event.data}
    body = _body(event.type, event.at, data)
    if len(body) > MAX_BODY_BYTES:
        body = _body(event.type, event.at, data | {"event": None})
    signing = signing_secrets(delivery.keyring, webhook, now=delivery.clock())
    return _Ready(url=webhook.url, body=body, secrets=signing)


def _body(event_type: str, at: datetime, data: Mapping[str, Any]) -> bytes:
    content = {"type": event_type, "timestamp": at.isoformat(), "data": data}
    return json.dumps(content, separators=(",", ":")).encode()


def _send(delivery: WebhookDelivery, ready: _Ready, message_id: str) -> int:
    """Return the status of success; raises NotDelivered for another one, or without a response."""
    headers = {"Content-Type": "application/json", "User-Agent": "Hillclimb-Webhooks/1"}
    headers |= signed_headers(ready.secrets, message_id, ready.body, now=delivery.clock())
    status = post(ready.url, headers, ready.body, allows_loopback=delivery.allows_loopback)
    if not 200 <= status < 300:
        raise NotDelivered(f"the receiver responded with status {status}", status)
    return status


def _failed(delivery: WebhookDelivery, claim: Claim, error: NotDelivered) -> None:
    num_waits = claim.num_attempts
    is_last = num_waits > len(BACKOFF_S) or error.status_code == GONE
    _record(
        delivery,
        claim,
        state=DEAD if is_last else PENDING,
        status_code=error.status_code,
        error=str(error),
    )


def _record(
    delivery: WebhookDelivery,
    claim: Claim,
    *,
    state: str,
    status_code: int | None = None,
    error: str | None = None,
) -> None:
    """Write the result of a try: the webhook first, then its message."""
    now = delivery.clock()
    with delivery.database.transaction() as session:
        webhook_id = claim.payload["webhook_id"]
        webhook = session.scalar(
            select(Webhook).where(Webhook.id == webhook_id).with_for_update(key_share=True)
        )
        message = find_claimed(session, claim)
        if webhook is None or message is None:
            return
        message.state, message.error, message.status_code = state, error, status_code
        message.lease_owner = message.lease_until = None
        if state == DELIVERED:
            message.delivered_at, webhook.failing_since = now, None
        elif state in (PENDING, DEAD):
            if state == PENDING:
                _postpone(message, delivery.rng, now=now)
            _count_failure(webhook, status_code, now=now)


def _postpone(message: OutboxMessage, rng: random.Random, *, now: datetime) -> None:
    wait_s = BACKOFF_S[message.num_attempts - 1] * rng.uniform(1.0 - JITTER, 1.0 + JITTER)
    message.next_attempt_at = now + timedelta(seconds=wait_s)


def _count_failure(webhook: Webhook, status_code: int | None, *, now: datetime) -> None:
    webhook.failing_since = webhook.failing_since or now
    reason = None
    if status_code == GONE:
        reason = "the receiver responded with status 410 (gone)"
    elif now - webhook.failing_since >= DISABLED_AFTER:
        reason = f"every delivery failed for {DISABLED_AFTER.days} days"
    if reason is not None and webhook.is_enabled:
        webhook.is_enabled, webhook.disabled_reason = False, reason
        log.warning("webhook %s is disabled: %s", webhook.id, reason)
