"""`/v1/webhooks`: addresses that receive the project's events; their deliveries, and a test."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Path, Query

from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import Admin, RawBody, Reader, Services, ServicesDep
from api.notices.webhooks import store
from api.notices.webhooks.deliver import WebhookDelivery, send_test
from api.notices.webhooks.errors import NotDelivered, WebhookNotFound, WebhookRejected
from api.notices.webhooks.request import SecretRotation, WebhookChanges, WebhookSpec
from api.runs.journal import utc_now
from api.runs.outbox import PENDING
from api.tables import OutboxMessage, Webhook
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal, Scope
from api.tables.access.secrets.errors import SecretUnreadable
from hillclimb.protocol.payloads.projects.webhooks import (
    DeletedWebhook,
    DeliveryList,
    DeliveryPayload,
    NewWebhook,
    WebhookList,
    WebhookPayload,
    WebhookTest,
)

router = APIRouter(
    prefix="/v1/webhooks",
    tags=["project"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)

WebhookId = Annotated[str, Path(max_length=60, examples=["whk_06dzk3m8v5q2w9x4t7r1c0n6ab"])]
UNKNOWN = documented(KINDS[WebhookNotFound])


@router.post(
    "",
    operation_id="create_webhook",
    summary="Create a webhook",
    status_code=201,
    responses={**documented(MALFORMED, INVALID, KINDS[WebhookRejected])},
    openapi_extra=json_body("WebhookSpec"),
)
def create_webhook(services: ServicesDep, caller: Admin, body: RawBody) -> NewWebhook:
    """Store the webhook; the response alone has the secret that signs its messages."""
    spec = parse_body(WebhookSpec, body)
    store.check_url(spec.url, allows_loopback=services.settings.webhook_loopback)
    with services.database.transaction() as session:
        webhook, secret = store.create(session, services.keyring, caller, spec, now=utc_now())
        facts = WebhookPayload.model_validate(webhook).model_dump()
    return NewWebhook(**facts, secret=secret)


@router.get("", operation_id="list_webhooks", summary="List webhooks")
def list_webhooks(services: ServicesDep, caller: Reader) -> WebhookList:
    """Return all webhooks, oldest first; their hosts alone to all but admins."""
    with services.database.transaction() as session:
        rows = store.list_webhooks(session, caller.project_id)
        return WebhookList(data=[_visible_to(row, caller) for row in rows])


@router.get(
    "/{webhook_id}", operation_id="get_webhook", summary="Get a webhook", responses={**UNKNOWN}
)
def get_webhook(services: ServicesDep, caller: Reader, webhook_id: WebhookId) -> WebhookPayload:
    """Return the webhook, and why it is disabled if it is; its host alone to all but admins."""
    with services.database.transaction() as session:
        return _visible_to(store.get(session, caller.project_id, webhook_id), caller)


@router.patch(
    "/{webhook_id}",
    operation_id="change_webhook",
    summary="Change a webhook",
    responses={**documented(MALFORMED, INVALID, KINDS[WebhookNotFound], KINDS[WebhookRejected])},
    openapi_extra=json_body("WebhookChanges"),
)
def change_webhook(
    services: ServicesDep, caller: Admin, webhook_id: WebhookId, body: RawBody
) -> WebhookPayload:
    """Change address, note or events, disable it, or enable it again."""
    changes = parse_body(WebhookChanges, body)
    if changes.url is not None:
        store.check_url(changes.url, allows_loopback=services.settings.webhook_loopback)
    with services.database.transaction() as session:
        webhook = store.change(session, caller.project_id, webhook_id, changes, now=utc_now())
        return WebhookPayload.model_validate(webhook)


@router.post(
    "/{webhook_id}/rotate",
    operation_id="rotate_webhook_secret",
    summary="Give a webhook a new signing secret",
    responses={**documented(MALFORMED, INVALID, KINDS[WebhookNotFound])},
    openapi_extra=json_body("SecretRotation"),
)
def rotate_webhook_secret(
    services: ServicesDep, caller: Admin, webhook_id: WebhookId, body: RawBody
) -> NewWebhook:
    """Return the new secret; until `previous_until` both secrets sign every message."""
    rotation = parse_body(SecretRotation, body)
    with services.database.transaction() as session:
        webhook, secret = store.rotate(
            session,
            services.keyring,
            caller.project_id,
            webhook_id,
            grace=timedelta(hours=rotation.grace_hours),
            now=utc_now(),
        )
        facts = WebhookPayload.model_validate(webhook).model_dump()
    return NewWebhook(**facts, secret=secret)


@router.delete(
    "/{webhook_id}",
    operation_id="delete_webhook",
    summary="Delete a webhook",
    responses={**UNKNOWN},
)
def delete_webhook(services: ServicesDep, caller: Admin, webhook_id: WebhookId) -> DeletedWebhook:
    """Delete the webhook with its deliveries, the pending ones too."""
    with services.database.transaction() as session:
        store.remove(session, caller.project_id, webhook_id)
    return DeletedWebhook(id=webhook_id, deleted=True)


@router.post(
    "/{webhook_id}/test",
    operation_id="test_webhook",
    summary="Send a test message",
    responses={**documented(KINDS[WebhookNotFound], KINDS[SecretUnreadable])},
)
def test_webhook(services: ServicesDep, caller: Admin, webhook_id: WebhookId) -> WebhookTest:
    """Send a signed message of the type `webhook.test` now, and return what became of it."""
    with services.database.transaction() as session:
        webhook = store.get(session, caller.project_id, webhook_id)
        session.expunge(webhook)
    try:
        status = send_test(_delivery(services), webhook)
    except NotDelivered as error:
        return WebhookTest(delivered=False, status_code=error.status_code, error=str(error))
    return WebhookTest(delivered=True, status_code=status, error=None)


@router.get(
    "/{webhook_id}/deliveries",
    operation_id="list_deliveries",
    summary="List deliveries of a webhook",
    responses={**UNKNOWN},
)
def list_deliveries(
    services: ServicesDep,
    caller: Reader,
    webhook_id: WebhookId,
    before: Annotated[int | None, Query(ge=1, le=2**62)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryList:
    """Return messages, newest first, with the result of the last try and the time of the next."""
    with services.database.transaction() as session:
        webhook = store.get(session, caller.project_id, webhook_id)
        rows = store.list_deliveries(session, webhook, before=before, limit=limit + 1)
        page = [_describe(row) for row in rows[:limit]]
    return DeliveryList(data=page, has_more=len(rows) > limit)


def _delivery(services: Services) -> WebhookDelivery:
    return WebhookDelivery(
        database=services.database,
        keyring=services.keyring,
        public_url=services.settings.link_base,
        allows_loopback=services.settings.webhook_loopback,
    )


def _visible_to(webhook: Webhook, caller: Principal) -> WebhookPayload:
    """Return the webhook as the caller may see it: an address may have a token of its receiver."""
    payload = WebhookPayload.model_validate(webhook)
    if Scope.ADMIN.value in caller.scopes:
        return payload
    parts = urlsplit(payload.url)
    hidden = "/…" if parts.path or parts.query else ""
    return payload.model_copy(update={"url": f"{parts.scheme}://{parts.netloc}{hidden}"})


def _describe(row: OutboxMessage) -> DeliveryPayload:
    names = [name for name in DeliveryPayload.model_fields if hasattr(row, name)]
    facts = {name: getattr(row, name) for name in names}
    own = {"message_id": f"msg_{row.id}", "event": row.kind}
    due = {"next_attempt_at": row.next_attempt_at if row.state == PENDING else None}
    return DeliveryPayload.of(facts | own | due)
