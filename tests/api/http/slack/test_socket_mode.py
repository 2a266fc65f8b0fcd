"""Socket Mode: the same inbox as the signed routes, one consumer, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

import api.http.slack.socket_mode.consumer as consuming
import api.notices.slack.socket as connecting
from api.http.requests.services import Services
from api.http.slack.receiving import receive
from api.http.slack.socket_mode import envelopes
from api.http.slack.socket_mode.consumer import EnvelopeConsumer
from api.settings import Settings
from api.tables import SlackRequest
from api.tables.database import Database
from tests.api.http.slack.conftest import COMMANDS, Person, send
from tests.fixtures.fake_slack import APP_TOKEN, TEAM, FakeSlack, command, sign, submission
from tests.fixtures.fake_socket import FakeSocket, as_payload, run_fake_socket

VIEW = {
    "callback_id": "fork",
    "private_metadata": json.dumps({"run": "run_1", "channel": "C1", "ts": None}),
    "blocks": [{"block_id": "changes", "element": {"action_id": "changes"}}],
}


@pytest.fixture
def socket(slack: FakeSlack, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSocket]:
    for module, name in ((connecting, "PING_S"), (consuming, "RETRY_S"), (consuming, "CHECK_S")):
        monkeypatch.setattr(module, name, 0.1)
    with run_fake_socket(slack) as fake:
        yield fake


@pytest.fixture
def services(app: FastAPI) -> Services:
    found: Services = app.state.services
    settings = found.settings.model_dump() | {"slack_app_token": APP_TOKEN}
    return replace(found, settings=Settings.model_validate(settings))


@asynccontextmanager
async def consumption(services: Services) -> AsyncIterator[EnvelopeConsumer]:
    consumer = EnvelopeConsumer(services=services)
    task = asyncio.create_task(consumer.run())
    try:
        yield consumer
    finally:
        consumer.stopping.set()
        await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110 - what is awaited happens in other threads
            await asyncio.sleep(0.02)


async def deliver(socket: FakeSocket, kind: str, body: bytes | dict[str, Any]) -> dict[str, Any]:
    payload = as_payload(body) if isinstance(body, bytes) else body
    return await asyncio.to_thread(socket.deliver, kind, payload)


def stored(database: Database) -> list[SlackRequest]:
    with database.transaction() as session:
        return list(session.scalars(select(SlackRequest).order_by(SlackRequest.id)))


async def test_a_command_is_answered_once_whichever_way_and_however_often_it_comes(
    anna: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    socket: FakeSocket,
    services: Services,
    database: Database,
) -> None:
    await anna.link()
    before, body = len(slack.whispers), command("runs", slack=slack)
    async with consumption(services):
        for _ in range(2):
            assert set(await deliver(socket, "slash_commands", body)) == {"envelope_id"}
        await until(lambda: len(slack.whispers) > before)
        # While the app is switched from one mode to the other, both may bring it.
        assert (await send(client, COMMANDS, sign(body))).status_code == 200
    (reply,) = slack.whispers[before:]
    assert reply["text"].startswith("No run.")
    assert [row.state for row in stored(database)] == ["done", "done"]
    assert socket.slowest_s < 3.0


async def test_mistakes_of_a_form_go_back_with_the_acknowledgement(
    slack: FakeSlack, socket: FakeSocket, services: Services, database: Database
) -> None:
    async with consumption(services):
        wrong = submission(VIEW, {"changes": "optimizer.lr"}, view_id="V9")
        answer = await deliver(socket, "interactive", wrong)
    assert answer["payload"]["response_action"] == "errors"
    assert "KEY=VALUE" in answer["payload"]["errors"]["changes"]
    assert stored(database) == []


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("slash_commands", {"text": "help"}),
        ("slash_commands", {"text": 7, "team_id": ["T"]}),
        ("interactive", {"type": "block_actions", "team": {"id": "T"}, "user": {"id": "U"}}),
        ("interactive", {"type": "shortcut", "team": {"id": "T"}, "user": {"id": "U"}}),
        ("events_api", {"type": "event_callback", "event": {"type": "app_mention"}}),
        ("events_api", {"event": {"type": "app_mention", "text": "\x00"}, "team_id": "T"}),
        ("events_api", {"event": {"type": "app_mention", "text": "\ud800"}, "team_id": "T"}),
        ("of_another_version", {}),
    ],
)
async def test_what_cannot_be_read_is_acknowledged_and_given_up(
    socket: FakeSocket, services: Services, database: Database, kind: str, payload: dict[str, Any]
) -> None:
    envelope = connecting.SocketEnvelope(id="e1", type=kind, payload=payload)
    assert envelopes.take_envelope(services, envelope) == envelopes.Receipt()
    assert stored(database) == []


async def test_an_event_that_is_sent_under_another_envelope_is_handled_once(
    anna: Person, slack: FakeSlack, socket: FakeSocket, services: Services
) -> None:
    await anna.link()
    before = len(slack.whispers)
    event = {"type": "app_mention", "user": "U0ANNA", "channel": "C0FAKE", "ts": "17.5"}
    event["text"] = "<@U0BOT> runs"
    body = {"type": "event_callback", "team_id": TEAM, "event_id": "Ev7", "event": event}
    async with consumption(services):
        for _ in range(2):
            await deliver(socket, "events_api", body)
        await until(lambda: len(slack.whispers) > before)
    assert len(slack.whispers) == before + 1


async def test_a_request_that_was_not_stored_is_not_acknowledged_and_comes_again(
    anna: Person,
    slack: FakeSlack,
    socket: FakeSocket,
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await anna.link()
    before, faults = len(slack.whispers), [OperationalError("INSERT", {}, Exception("away"))]

    def fails_once(*args: Any, **kwargs: Any) -> int | None:
        if faults:
            raise faults.pop()
        return receive(*args, **kwargs)

    monkeypatch.setattr(envelopes, "receive", fails_once)
    monkeypatch.setattr("tests.fixtures.fake_socket.ACKNOWLEDGE_S", 1.0)
    async with consumption(services):
        await deliver(socket, "slash_commands", command("runs", slack=slack))
        await until(lambda: len(slack.whispers) > before)
    assert socket.num_sent >= 2
    assert len(slack.whispers) == before + 1


async def test_one_process_is_connected_and_the_next_takes_over_when_it_stops(
    slack: FakeSlack, socket: FakeSocket, services: Services
) -> None:
    async with consumption(services) as first:
        await until(lambda: len(socket.connections) == 1)
        async with consumption(services):
            await asyncio.sleep(0.3)
            assert slack.num_opened == 1
            first.stopping.set()
            await until(lambda: slack.num_opened == 2 and len(socket.connections) == 1)


async def test_it_connects_anew_when_slack_asks_for_it_or_hangs_up(
    slack: FakeSlack, socket: FakeSocket, services: Services
) -> None:
    async with consumption(services):
        await until(lambda: len(socket.connections) == 1)
        (old,) = socket.connections
        socket.ask_to_reconnect()
        await until(lambda: slack.num_opened == 2 and old not in socket.connections)
        socket.connections[-1].socket.shutdown(2)  # without a word
        await until(lambda: slack.num_opened == 3 and len(socket.connections) == 1)
        body = command("help", slack=slack)
        await deliver(socket, "slash_commands", body)
        await until(lambda: len(slack.whispers) == 1)


async def test_a_token_that_slack_refuses_is_said_and_tried_again(
    slack: FakeSlack,
    socket: FakeSocket,
    services: Services,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slack.socket_url, url = None, slack.socket_url
    async with consumption(services):
        await until(lambda: "Slack refuses the connection (forbidden_for_team)" in caplog.text)
        assert APP_TOKEN not in caplog.text
        slack.socket_url = url
        await until(lambda: len(socket.connections) == 1)
