"""Webhooks, from an event to a receiver on loopback: signed, repeated, never to private hosts."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import pytest
from sqlalchemy import select

from api.notices.deliver import Delivery, deliver_due
from api.notices.webhooks import network, store
from api.notices.webhooks.deliver import (
    BACKOFF_S,
    DISABLED_AFTER,
    MAX_BODY_BYTES,
    WebhookDelivery,
    deliver_due_webhooks,
)
from api.notices.webhooks.errors import NotDelivered, WebhookRejected
from api.notices.webhooks.request import EventType, WebhookSpec
from api.notices.webhooks.signing import signed_headers
from api.runs.journal import Draft, append, utc_now
from api.runs.outbox import WEBHOOK_EVENTS, claim_next_of_webhooks
from api.runs.store import lock_run
from api.tables import OutboxMessage, Project, Webhook
from api.tables.access.identity import Principal
from api.tables.access.secrets.keyring import Keyring
from tests.api.fixtures.story import PROJECT, Story, spec
from tests.fixtures.webhook_receiver import Receiver, run_receiver

KEYS = Keyring({"test": b"k" * 32})
CALLER = Principal(project_id=PROJECT, key_id="key_1", key_name="me", scopes=frozenset())


class Clock:
    def __init__(self) -> None:
        self.now = utc_now() + timedelta(minutes=1)

    def __call__(self) -> datetime:
        return self.now

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with run_receiver() as running:
        yield running


@pytest.fixture
def delivery(story: Story, clock: Clock) -> WebhookDelivery:
    return WebhookDelivery(
        database=story.database,
        keyring=KEYS,
        public_url="http://127.0.0.1:8000/",
        allows_loopback=True,
        clock=clock,
        rng=random.Random(0),
    )


def create(story: Story, url: str, *events: EventType, project: str = PROJECT) -> tuple[str, str]:
    caller = replace(CALLER, project_id=project)
    with story.database.transaction() as session:
        body = WebhookSpec(url=url, events=events)
        webhook, secret = store.create(session, KEYS, caller, body, now=utc_now())
        return webhook.id, secret


def webhook(story: Story, webhook_id: str) -> Webhook:
    with story.database.transaction() as session:
        return store.get(session, PROJECT, webhook_id)


def messages(story: Story) -> list[OutboxMessage]:
    query = select(OutboxMessage).where(OutboxMessage.webhook_id.is_not(None))
    with story.database.transaction() as session:
        return list(session.scalars(query.order_by(OutboxMessage.id)))


def warn(story: Story, run_id: str, message: str = "y") -> None:
    data = {"code": "x", "message": message}
    with story.database.transaction() as session:
        append(session, lock_run(session, run_id), [Draft(type="run.warning", data=data)])


def test_a_signature_is_that_of_the_specification() -> None:
    """The example of Standard Webhooks' reference libraries."""
    headers = signed_headers(
        ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        b'{"test": 2432232314}',
        now=datetime.fromtimestamp(1614265330, UTC),
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_the_types_that_can_be_chosen_are_those_that_are_sent() -> None:
    assert set(get_args(EventType)) == WEBHOOK_EVENTS


def test_events_are_delivered_signed_each_once(
    story: Story, delivery: WebhookDelivery, receiver: Receiver
) -> None:
    _, secret = create(story, receiver.url)
    run_id = story.running(spec())
    while deliver_due_webhooks(delivery):
        pass
    bodies = [json.loads(body) for _, body in receiver.requests]
    types = [body["type"] for body in bodies]
    assert types[0] == "run.created"
    assert {"run.status_changed", "trainer.started"} <= set(types)
    assert {body["data"]["run"]["id"] for body in bodies} == {run_id}
    assert bodies[0]["data"]["run"]["url"] == f"http://127.0.0.1:8000/runs/{run_id}"
    seqs = [body["data"]["seq"] for body in bodies]
    assert len(seqs) == len(set(seqs))
    ids = {headers["webhook-id"] for headers, _ in receiver.requests}
    assert len(ids) == len(receiver.requests)
    for headers, body in receiver.requests:
        at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
        expected = signed_headers([secret], headers["webhook-id"], body, now=at)
        assert headers["webhook-signature"] == expected["webhook-signature"]
    assert {message.state for message in messages(story)} == {"delivered"}


def test_a_filter_and_another_project_receive_nothing_else(
    story: Story, delivery: WebhookDelivery, receiver: Receiver
) -> None:
    create(story, receiver.url, "trainer.started")
    with story.database.transaction() as session:
        session.merge(Project(id="prj_elsewhere", name="elsewhere"))
    create(story, receiver.url, project="prj_elsewhere")
    story.running(spec())
    deliver_due_webhooks(delivery)
    assert [json.loads(body)["type"] for _, body in receiver.requests] == ["trainer.started"]


def test_a_failed_delivery_is_repeated_with_the_same_id_after_a_back_off(
    story: Story, delivery: WebhookDelivery, receiver: Receiver, clock: Clock
) -> None:
    webhook_id, _ = create(story, receiver.url, "trainer.started")
    receiver.statuses = [500, 302]
    receiver.location = receiver.url
    story.running(spec())
    assert deliver_due_webhooks(delivery) == 0
    assert deliver_due_webhooks(delivery) == 0
    assert len(receiver.requests) == 1
    (message,) = messages(story)
    assert (message.state, message.status_code) == ("pending", 500)
    assert webhook(story, webhook_id).failing_since == clock.now
    clock.later(BACKOFF_S[0] * 1.2 + 1)
    assert deliver_due_webhooks(delivery) == 0
    assert len(receiver.requests) == 2, "a redirect is no success, and is not followed"
    clock.later(BACKOFF_S[1] * 1.2 + 1)
    assert deliver_due_webhooks(delivery) == 1
    assert len({headers["webhook-id"] for headers, _ in receiver.requests}) == 1
    assert webhook(story, webhook_id).failing_since is None


def test_a_message_is_given_up_and_a_webhook_that_only_fails_is_disabled(
    story: Story, delivery: WebhookDelivery, receiver: Receiver, clock: Clock
) -> None:
    webhook_id, _ = create(story, receiver.url, "trainer.started", "run.warning")
    receiver.statuses = [500] * 50
    run_id = story.running(spec())
    while (message := messages(story)[0]).state == "pending":
        deliver_due_webhooks(delivery)
        clock.now = max(clock.now, messages(story)[0].next_attempt_at)
    assert (message.state, message.num_attempts) == ("dead", len(BACKOFF_S) + 1)
    assert webhook(story, webhook_id).is_enabled is True
    clock.later(DISABLED_AFTER.total_seconds())
    warn(story, run_id)
    deliver_due_webhooks(delivery)
    row = webhook(story, webhook_id)
    assert row.is_enabled is False
    assert row.disabled_reason == f"every delivery failed for {DISABLED_AFTER.days} days"
    warn(story, run_id)
    assert len(messages(story)) == 2, "a disabled webhook gets no messages"


def test_a_receiver_that_is_gone_is_disabled_at_once_and_what_is_due_is_skipped(
    story: Story, delivery: WebhookDelivery, receiver: Receiver
) -> None:
    webhook_id, _ = create(story, receiver.url)
    receiver.statuses = [410]
    story.running(spec())
    deliver_due_webhooks(delivery)
    assert len(receiver.requests) == 1
    assert webhook(story, webhook_id).is_enabled is False
    states = [message.state for message in messages(story)]
    assert states == ["dead", *["skipped"] * (len(states) - 1)]
    assert len(states) > 1


def test_one_message_of_a_webhook_is_under_way_at_a_time(
    story: Story, receiver: Receiver, clock: Clock
) -> None:
    create(story, receiver.url)
    create(story, receiver.url, "trainer.started")
    story.running(spec())
    claims = []
    for number in range(3):
        with story.database.transaction() as session:
            claims.append(claim_next_of_webhooks(session, owner=str(number), now=clock.now))
    assert [claim is None for claim in claims] == [False, False, True]


def test_a_failing_webhook_delays_no_message_to_slack(
    story: Story, delivery: WebhookDelivery, receiver: Receiver, clock: Clock
) -> None:
    create(story, receiver.url)
    receiver.statuses = [500] * 50
    story.running(spec(channel="#training"))
    deliver_due_webhooks(delivery)
    slack = Delivery(database=story.database, slack=None, public_url="http://x", clock=clock)
    deliver_due(slack)
    query = select(OutboxMessage.state).where(OutboxMessage.webhook_id.is_(None))
    with story.database.transaction() as session:
        assert set(session.scalars(query)) == {"skipped"}


def test_a_large_event_is_named_without_its_data(
    story: Story, delivery: WebhookDelivery, receiver: Receiver
) -> None:
    create(story, receiver.url, "run.warning")
    run_id = story.running(spec())
    warn(story, run_id, "y" * MAX_BODY_BYTES)
    deliver_due_webhooks(delivery)
    ((_, body),) = receiver.requests
    assert json.loads(body)["data"]["event"] is None


def test_a_receiver_that_sends_byte_by_byte_gains_no_time(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(network, "DEADLINE_S", 0.4)
    receiver.drip_s = 0.1
    with pytest.raises(NotDelivered, match=r"no response within 0.4 s"):
        network.post(receiver.url, {}, b"{}", allows_loopback=True)


def test_loopback_is_refused_where_settings_do_not_allow_it(receiver: Receiver) -> None:
    with pytest.raises(NotDelivered, match=r"127\.0\.0\.1 has an address that is not public"):
        network.post(receiver.url, {}, b"{}", allows_loopback=False)
    assert receiver.requests == []


def test_a_name_that_leads_to_a_private_address_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another of its addresses is public."""

    def resolve(host: str, port: int, **_: object) -> list[object]:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("93.184.216.34", "10.0.0.7")
        ]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(NotDelivered, match=r"hook\.example has an address that is not"):
        network.post("https://hook.example/x", {}, b"{}", allows_loopback=False)


def test_a_name_without_an_address_is_a_failed_delivery() -> None:
    with pytest.raises(NotDelivered, match="has no address"):
        network.post("https://name.invalid/x", {}, b"{}", allows_loopback=False)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/x",
        "ftp://example.com/x",
        "https://",
        "https://user:secret@example.com/x",
        "https://example.com/x#part",
        "https://localhost/x",
        "https://x.localhost/x",
        "https://127.0.0.1/x",
        "https://[::1]/x",
        "https://10.0.0.7/x",
        "https://169.254.169.254/latest",
        "https://example.com:99999/x",
        "https://exämple.com/x",
    ],
)
def test_an_address_that_can_never_receive_is_refused_when_it_is_stored(url: str) -> None:
    with pytest.raises(WebhookRejected):
        store.check_url(url, allows_loopback=False)


def test_public_https_addresses_are_stored_and_local_ones_where_settings_allow() -> None:
    store.check_url("https://example.com:8443/hook?a=b", allows_loopback=False)
    store.check_url("http://127.0.0.1:8000/hook", allows_loopback=True)


def signs(secret: str, request: tuple[dict[str, str], bytes]) -> bool:
    """Tell whether a receiver that knows this secret alone accepts the message, as libraries do."""
    headers, body = request
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    expected = signed_headers([secret], headers["webhook-id"], body, now=at)["webhook-signature"]
    return expected in headers["webhook-signature"].split(" ")


def test_after_a_rotation_both_secrets_sign_until_the_period_is_over(
    story: Story, delivery: WebhookDelivery, receiver: Receiver, clock: Clock
) -> None:
    webhook_id, first = create(story, receiver.url, "run.warning")
    run_id = story.running(spec())

    def rotated(hours: float) -> str:
        with story.database.transaction() as session:
            grace = timedelta(hours=hours)
            _, secret = store.rotate(session, KEYS, PROJECT, webhook_id, grace=grace, now=clock.now)
        return secret

    def accepted_by(*secrets: str) -> list[bool]:
        warn(story, run_id, f"warning {len(receiver.requests)}")
        assert deliver_due_webhooks(delivery) == 1
        return [signs(each, receiver.requests[-1]) for each in secrets]

    assert accepted_by(first) == [True]
    second = rotated(24)
    assert accepted_by(first, second) == [True, True]
    clock.now += timedelta(hours=24, seconds=1)
    assert accepted_by(first, second) == [False, True]
    third, fourth = rotated(24), rotated(24)
    assert accepted_by(second, third, fourth) == [False, True, True]
    fifth = rotated(0)
    assert accepted_by(fourth, fifth) == [False, True]
