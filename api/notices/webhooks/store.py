"""Reads and writes webhooks and their deliveries; the caller's project is part of every query."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from api.notices.webhooks.errors import WebhookNotFound, WebhookRejected
from api.notices.webhooks.request import WebhookChanges, WebhookSpec
from api.notices.webhooks.signing import new_signing_secret
from api.tables import OutboxMessage, Webhook
from api.tables.access.identity import Principal
from api.tables.access.secrets.keyring import Encrypted, Keyring, Place
from api.tables.ids import new_id
from hillclimb.process.network.addresses import NO_HOSTS, OWN_MACHINE_HOSTS
from hillclimb.spec.hosts import is_loopback_host

MAX_WEBHOOKS = 20
"""Webhooks of one project."""


def check_url(url: str, *, allows_loopback: bool) -> None:
    """Refuse an address that is not https, or names a private host; raises WebhookRejected."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise WebhookRejected("The url is not valid: use https://HOST/PATH.") from None
    if not host or parts.username or parts.password or parts.fragment or not url.isascii():
        raise WebhookRejected(
            "The url needs a host, and neither user, password nor fragment, in ASCII characters:"
            " use https://HOST/PATH."
        )
    is_local = is_loopback_host(host) or host.endswith(".localhost")
    if is_local and not allows_loopback:
        raise WebhookRejected(f"{host} is the service's own machine: use a public host.")
    if parts.scheme != "https" and not (is_local and parts.scheme == "http"):
        raise WebhookRejected("The url must begin with https://: events are not for everybody.")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return
    if not (OWN_MACHINE_HOSTS if allows_loopback else NO_HOSTS).allow(host, address):
        raise WebhookRejected(f"{host} is not a public address: use a public host.")


def create(
    session: Session, keyring: Keyring, caller: Principal, spec: WebhookSpec, *, now: datetime
) -> tuple[Webhook, str]:
    """Store a webhook and return it with its signing secret, which is not returned again."""
    where = Webhook.project_id == caller.project_id
    number = session.scalar(select(func.count()).select_from(Webhook).where(where)) or 0
    if number >= MAX_WEBHOOKS:
        raise WebhookRejected(f"The project has {MAX_WEBHOOKS} webhooks, the most it can.")
    webhook_id, secret = new_id("whk"), new_signing_secret()
    encrypted = keyring.encrypt(secret, _place(caller.project_id, webhook_id))
    webhook = Webhook(
        id=webhook_id,
        project_id=caller.project_id,
        url=spec.url,
        description=spec.description,
        events=list(dict.fromkeys(spec.events)),
        key_id=encrypted.key_id,
        ciphertext=encrypted.ciphertext,
        is_enabled=True,
        created_by=caller.actor,
        created_at=now,
        updated_at=now,
    )
    session.add(webhook)
    session.flush()
    return webhook, secret


def signing_secrets(keyring: Keyring, webhook: Webhook, *, now: datetime) -> tuple[str, ...]:
    """Return the secrets that sign a message now, the newest first; raises SecretUnreadable."""
    place = _place(webhook.project_id, webhook.id)
    stored = [Encrypted(key_id=webhook.key_id, ciphertext=webhook.ciphertext)]
    key_id, ciphertext = webhook.previous_key_id, webhook.previous_ciphertext
    is_valid = webhook.previous_until is not None and webhook.previous_until > now
    if is_valid and key_id is not None and ciphertext is not None:
        stored.append(Encrypted(key_id=key_id, ciphertext=ciphertext))
    return tuple(keyring.decrypt(each, place) for each in stored)


def rotate(
    session: Session,
    keyring: Keyring,
    project_id: str,
    webhook_id: str,
    *,
    grace: timedelta,
    now: datetime,
) -> tuple[Webhook, str]:
    """Give a webhook a new signing secret, and return both.

    For `grace` the secret before signs every message too; an earlier one ends at once. Raises
    WebhookNotFound.
    """
    webhook = get(session, project_id, webhook_id, lock=True)
    secret = new_signing_secret()
    encrypted = keyring.encrypt(secret, _place(project_id, webhook_id))
    has_grace = grace > timedelta(0)
    webhook.previous_key_id = webhook.key_id if has_grace else None
    webhook.previous_ciphertext = webhook.ciphertext if has_grace else None
    webhook.previous_until = now + grace if has_grace else None
    webhook.key_id, webhook.ciphertext = encrypted.key_id, encrypted.ciphertext
    webhook.updated_at = now
    return webhook, secret


def get(session: Session, project_id: str, webhook_id: str, *, lock: bool = False) -> Webhook:
    """Return a webhook of the project; raises WebhookNotFound."""
    query = select(Webhook).where(Webhook.id == webhook_id, Webhook.project_id == project_id)
    webhook = session.scalar(query.with_for_update() if lock else query)
    if webhook is None:
        raise WebhookNotFound(f"This project has no webhook {webhook_id!r}.")
    return webhook


def list_webhooks(session: Session, project_id: str) -> Sequence[Webhook]:
    """Return the project's webhooks, oldest first."""
    query = select(Webhook).where(Webhook.project_id == project_id)
    return session.scalars(query.order_by(Webhook.id).limit(MAX_WEBHOOKS)).all()


def change(
    session: Session, project_id: str, webhook_id: str, changes: WebhookChanges, *, now: datetime
) -> Webhook:
    """Change a webhook; enabling it forgets its failures. Raises WebhookNotFound."""
    webhook = get(session, project_id, webhook_id, lock=True)
    if changes.url is not None:
        webhook.url = changes.url
    if changes.description is not None:
        webhook.description = changes.description
    if changes.events is not None:
        webhook.events = list(dict.fromkeys(changes.events))
    if changes.enabled is not None:
        webhook.is_enabled = changes.enabled
        webhook.disabled_reason = None if changes.enabled else "disabled by a user"
        webhook.failing_since = None
    webhook.updated_at = now
    return webhook


def remove(session: Session, project_id: str, webhook_id: str) -> None:
    """Delete a webhook with its deliveries; raises WebhookNotFound."""
    webhook = get(session, project_id, webhook_id, lock=True)
    session.execute(delete(OutboxMessage).where(OutboxMessage.webhook_id == webhook.id))
    session.delete(webhook)


def list_deliveries(
    session: Session, webhook: Webhook, *, before: int | None, limit: int
) -> Sequence[OutboxMessage]:
    """Return deliveries of a webhook, newest first, older than the one with the id `before`."""
    query = select(OutboxMessage).where(OutboxMessage.webhook_id == webhook.id)
    if before is not None:
        query = query.where(OutboxMessage.id < before)
    return session.scalars(query.order_by(OutboxMessage.id.desc()).limit(limit)).all()


def _place(project_id: str, webhook_id: str) -> Place:
    return Place(purpose="webhook", project_id=project_id, name=webhook_id)
