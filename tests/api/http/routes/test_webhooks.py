"""Webhooks over HTTP: created with a secret shown once, changed, tried, listed, deleted."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from api.notices.webhooks.deliver import WebhookDelivery, deliver_due_webhooks
from api.notices.webhooks.store import MAX_WEBHOOKS
from api.settings import Settings
from tests.api.http.conftest import READ_ONLY, STRANGER, bearer
from tests.fixtures.factories import spec_body
from tests.fixtures.webhook_receiver import Receiver, run_receiver

URL = "https://example.com/hook"


@pytest.fixture
def receiver(app: FastAPI, settings: Settings) -> Iterator[Receiver]:
    local = settings.model_copy(update={"webhook_loopback": True})
    app.state.services = dataclasses.replace(app.state.services, settings=local)
    with run_receiver() as running:
        yield running


async def create(client: httpx.AsyncClient, url: str = URL, **keys: Any) -> dict[str, Any]:
    answer = await client.post("/v1/webhooks", json={"url": url, **keys})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def test_the_secret_is_shown_once(client: httpx.AsyncClient) -> None:
    made = await create(client, events=["run.status_changed"], description="ends")
    assert made["secret"].startswith("whsec_")
    path = f"/v1/webhooks/{made['id']}"
    one, page = await client.get(path), await client.get("/v1/webhooks")
    assert one.json() == page.json()["data"][0] == {k: v for k, v in made.items() if k != "secret"}
    changed = await client.patch(path, json={"enabled": False, "events": []})
    assert (changed.json()["is_enabled"], changed.json()["events"]) == (False, [])
    assert changed.json()["disabled_reason"] == "disabled by a user"
    assert (await client.patch(path, json={"enabled": True})).json()["disabled_reason"] is None
    for answer in (one, page, changed):
        assert made["secret"] not in answer.text
    assert (await client.delete(path)).json() == {"id": made["id"], "deleted": True}
    gone = await client.get(path)
    assert (gone.status_code, gone.json()["code"]) == (404, "webhook_not_found")


async def test_events_reach_the_receiver_and_the_log_of_deliveries(
    client: httpx.AsyncClient, app: FastAPI, receiver: Receiver
) -> None:
    made = await create(client, receiver.url, events=["run.created"])
    runs = [(await client.post("/v1/runs", json=spec_body())).json()["id"] for _ in range(3)]
    services = app.state.services
    receiver.statuses = [204, 500]
    deliver_due_webhooks(
        WebhookDelivery(
            database=services.database,
            keyring=services.keyring,
            public_url="http://service",
            allows_loopback=True,
        )
    )
    path = f"/v1/webhooks/{made['id']}/deliveries"
    first = (await client.get(path, params={"limit": 2})).json()
    assert (first["has_more"], len(first["data"])) == (True, 2)
    before = first["data"][-1]["id"]
    last = (await client.get(path, params={"before": before})).json()
    listed = [*first["data"], *last["data"]]
    assert last["has_more"] is False
    assert [each["run_id"] for each in listed] == runs[::-1]
    states = [(each["state"], each["status_code"]) for each in listed]
    assert states == [("delivered", 204), ("pending", 500), ("delivered", 204)]
    assert listed[1]["error"] == "the receiver responded with status 500"
    assert listed[1]["next_attempt_at"] is not None
    sent = {headers["webhook-id"] for headers, _ in receiver.requests}
    assert sent == {each["message_id"] for each in listed}
    assert (await client.delete(f"/v1/webhooks/{made['id']}")).status_code == 200


async def test_a_test_message_is_sent_at_once_and_its_result_returned(
    client: httpx.AsyncClient, receiver: Receiver
) -> None:
    made = await create(client, receiver.url)
    path = f"/v1/webhooks/{made['id']}/test"
    result = (await client.post(path)).json()
    assert result == {"delivered": True, "status_code": 204, "error": None}
    assert json.loads(receiver.requests[0][1])["type"] == "webhook.test"
    receiver.statuses = [401]
    failed = (await client.post(path)).json()
    assert (failed["delivered"], failed["status_code"]) == (False, 401)


async def test_a_private_address_is_refused_when_stored_and_when_used(
    client: httpx.AsyncClient, app: FastAPI, receiver: Receiver, settings: Settings
) -> None:
    made = await create(client, receiver.url)
    app.state.services = dataclasses.replace(app.state.services, settings=settings)
    refused = await client.post("/v1/webhooks", json={"url": receiver.url})
    assert (refused.status_code, refused.json()["code"]) == (422, "webhook_rejected")
    path = f"/v1/webhooks/{made['id']}"
    moved = await client.patch(path, json={"url": "https://10.0.0.7/x"})
    assert moved.json()["code"] == "webhook_rejected"
    tried = (await client.post(f"{path}/test")).json()
    assert tried["error"] == "127.0.0.1 has an address that is not public"
    assert receiver.requests == []


@pytest.mark.parametrize("body", [{}, {"url": URL, "events": ["step.completed"]}, {"url": ""}])
async def test_a_mistake_is_refused(client: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await client.post("/v1/webhooks", json=body)).status_code == 422


async def test_their_number_is_limited(client: httpx.AsyncClient) -> None:
    for _ in range(MAX_WEBHOOKS):
        await create(client)
    refused = await client.post("/v1/webhooks", json={"url": URL})
    assert (refused.status_code, refused.json()["code"]) == (422, "webhook_rejected")


async def test_only_an_admin_of_the_project_changes_them(client: httpx.AsyncClient) -> None:
    made = await create(client)
    path = f"/v1/webhooks/{made['id']}"
    for key in (READ_ONLY, STRANGER):
        headers = bearer(key)
        asked = [
            await client.post("/v1/webhooks", json={"url": URL}, headers=headers),
            await client.patch(path, json={"enabled": False}, headers=headers),
            await client.post(f"{path}/test", headers=headers),
            await client.delete(path, headers=headers),
        ]
        assert {answer.status_code for answer in asked} == {403}
    for each in (path, f"{path}/deliveries"):
        assert (await client.get(each, headers=bearer(STRANGER))).status_code == 404
        assert (await client.get(each, headers=bearer(READ_ONLY))).status_code == 200
    assert (await client.get("/v1/webhooks", headers=bearer(STRANGER))).json()["data"] == []


async def test_a_token_in_the_address_is_shown_to_admins_alone(client: httpx.AsyncClient) -> None:
    url = "https://hooks.example.com:8443/services/T0/token-4711?key=token-4712"
    made = await create(client, url)
    path = f"/v1/webhooks/{made['id']}"
    for each in (path, "/v1/webhooks", f"{path}/deliveries"):
        answer = await client.get(each, headers=bearer(READ_ONLY))
        assert answer.status_code == 200
        assert "token-" not in answer.text
    shown = (await client.get(path, headers=bearer(READ_ONLY))).json()
    assert shown["url"] == "https://hooks.example.com:8443/…"
    assert (await client.get(path)).json()["url"] == made["url"] == url
    await create(client, "https://example.com")
    listed = (await client.get("/v1/webhooks", headers=bearer(READ_ONLY))).json()["data"]
    assert [each["url"] for each in listed] == [shown["url"], "https://example.com"]


async def test_a_secret_is_rotated_and_shown_once(client: httpx.AsyncClient) -> None:
    made = await create(client)
    path = f"/v1/webhooks/{made['id']}"
    rotated = (await client.post(f"{path}/rotate", json={"grace_hours": 2})).json()
    assert rotated["secret"].startswith("whsec_")
    assert rotated["secret"] != made["secret"]
    page = await client.get(path)
    assert page.json()["previous_until"] == rotated["previous_until"] is not None
    for secret in (made["secret"], rotated["secret"]):
        assert secret not in page.text
    ended = (await client.post(f"{path}/rotate", json={"grace_hours": 0})).json()
    assert ended["previous_until"] is None
    for body in ({"grace_hours": -1}, {"grace_hours": 721}, {"hours": 1}):
        assert (await client.post(f"{path}/rotate", json=body)).status_code == 422
    for key, status in ((READ_ONLY, 403), (STRANGER, 403)):
        answer = await client.post(f"{path}/rotate", json={}, headers=bearer(key))
        assert answer.status_code == status
