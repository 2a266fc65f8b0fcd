"""The client's methods for the project's webhooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from hillclimb.client.http import Http
from hillclimb.client.paths import quoted
from hillclimb.protocol.payloads.projects.webhooks import (
    DeletedWebhook,
    DeliveryList,
    NewWebhook,
    WebhookList,
    WebhookPayload,
    WebhookTest,
)

PATH = "/v1/webhooks"


class Webhooks:
    """Webhooks of the project; raises what `Client` does."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def create(self, url: str, *, events: Sequence[str] = (), description: str = "") -> NewWebhook:
        """Create a webhook; the answer alone has its signing secret."""
        body = {"url": url, "events": list(events), "description": description}
        return self._http.request(NewWebhook, "POST", PATH, json=body)

    def list(self) -> WebhookList:
        """Return all webhooks."""
        return self._http.get(WebhookList, PATH)

    def get(self, webhook_id: str) -> WebhookPayload:
        """Return one webhook."""
        return self._http.get(WebhookPayload, _of(webhook_id))

    def change(self, webhook_id: str, changes: Mapping[str, JsonValue]) -> WebhookPayload:
        """Change the keys of `changes`: url, description, events, enabled."""
        return self._http.request(WebhookPayload, "PATCH", _of(webhook_id), json=dict(changes))

    def delete(self, webhook_id: str) -> DeletedWebhook:
        """Delete a webhook with its deliveries."""
        return self._http.request(DeletedWebhook, "DELETE", _of(webhook_id))

    def rotate(self, webhook_id: str, *, grace_hours: float = 24.0) -> NewWebhook:
        """Replace the signing secret; the one before signs messages too for `grace_hours`."""
        body = {"grace_hours": grace_hours}
        return self._http.request(NewWebhook, "POST", _of(webhook_id, "rotate"), json=body)

    def test(self, webhook_id: str) -> WebhookTest:
        """Send a test message now."""
        return self._http.request(WebhookTest, "POST", _of(webhook_id, "test"))

    def deliveries(
        self, webhook_id: str, *, before: int | None = None, limit: int | None = None
    ) -> DeliveryList:
        """Return one page of deliveries, newest first, older than the delivery `before`."""
        query = {"before": before, "limit": limit}
        return self._http.get(DeliveryList, _of(webhook_id, "deliveries"), query)


def _of(webhook_id: str, *parts: str) -> str:
    return "/".join((PATH, quoted(webhook_id), *parts))
