"""Who is not Slack gets nothing done: forged, stale, replayed and malformed requests."""

from __future__ import annotations

import json
import logging
import time

import httpx
import pytest
from sqlalchemy import func, select

from api.tables import SlackRequest
from api.tables.database import Database
from tests.api.http.conftest import KEY
from tests.api.http.slack.conftest import COMMANDS, EVENTS, INTERACTIONS, Person, send
from tests.fixtures.fake_slack import SIGNING_SECRET, TOKEN, FakeSlack, command, sign


def num_stored(database: Database) -> int:
    with database.transaction() as session:
        return session.scalar(select(func.count()).select_from(SlackRequest)) or 0


@pytest.mark.parametrize("path", [COMMANDS, INTERACTIONS, EVENTS])
@pytest.mark.parametrize("fault", ["secret", "body", "stale", "future", "none", "text", "ümlaut"])
async def test_a_request_that_slack_did_not_sign_just_now_is_refused(
    client: httpx.AsyncClient, slack: FakeSlack, database: Database, path: str, fault: str
) -> None:
    body = command("help", slack=slack)
    ages = {"stale": -301.0, "future": 360.0}  # some minutes later it is still early
    secret = "another" if fault == "secret" else SIGNING_SECRET
    request = sign(body, secret=secret, at=time.time() + ages.get(fault, 0.0))
    content = body + b"&x=1" if fault == "body" else body
    headers: dict[str, str | bytes] = {**request.headers, "Authorization": f"Bearer {KEY}"}
    if fault == "none":
        del headers["X-Slack-Signature"]
    if fault == "text":
        headers["X-Slack-Request-Timestamp"] = "now"
    if fault == "ümlaut":
        headers["X-Slack-Signature"] = "v0=ü".encode("latin-1")
    answer = await client.post(path, content=content, headers=headers)
    assert answer.status_code == 401, answer.text
    assert answer.json()["code"] == "request_forged"
    assert num_stored(database) == 0
    assert slack.calls == 0


async def test_a_request_four_minutes_old_is_accepted_and_its_replay_is_not(
    client: httpx.AsyncClient, slack: FakeSlack
) -> None:
    request = sign(command("help", slack=slack), at=time.time() - 240)
    assert (await send(client, COMMANDS, request)).status_code == 200
    assert len(slack.whispers) == 1
    replayed = await send(client, COMMANDS, request)
    assert replayed.status_code == 401
    assert replayed.json()["detail"] == "This request was received before."
    assert len(slack.whispers) == 1


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMMANDS, b"text=help"),
        (COMMANDS, b"\xff\xfe"),
        (INTERACTIONS, b"payload=%7B"),
        (INTERACTIONS, b"payload=%5B1%5D"),
        (INTERACTIONS, b'payload={"type":"block_actions","team":{"id":"T"},"user":{"id":"U"}}'),
        (INTERACTIONS, b'payload={"type":"block_actions","team":"T","user":{"id":"U"}}'),
        (EVENTS, b"[]"),
        (EVENTS, b'{"a": "\\u0000"}'),
        (EVENTS, b'{"type":"event_callback","event":{"type":"app_mention"}}'),
    ],
)
async def test_a_signed_body_that_cannot_be_read_is_refused_with_a_sentence(
    client: httpx.AsyncClient, path: str, body: bytes
) -> None:
    answer = await send(client, path, sign(body))
    assert answer.status_code in (400, 401), answer.text
    assert answer.json()["detail"]


async def test_the_address_check_of_slack_is_answered(client: httpx.AsyncClient) -> None:
    body = json.dumps({"type": "url_verification", "challenge": "3eZbrw1a"}).encode()
    answer = await send(client, EVENTS, sign(body, form=False))
    assert answer.json() == {"challenge": "3eZbrw1a"}


async def test_no_secret_is_logged_or_answered(
    anna: Person, slack: FakeSlack, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await anna.link()
    await anna.say("status nothing")
    everything = caplog.text + json.dumps(slack.whispers)
    for secret in (TOKEN, SIGNING_SECRET, "verification-token", KEY):
        assert secret not in everything
