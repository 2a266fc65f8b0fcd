"""The application with a signing secret, a fake Slack, and people who speak to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from api.http.slack import processing
from api.settings import Settings
from tests.api.http.conftest import KEY, bearer
from tests.api.http.conftest import settings as plain_settings
from tests.fixtures.fake_slack import (
    SIGNING_SECRET,
    TOKEN,
    FakeSlack,
    SignedRequest,
    click,
    command,
    run_fake_slack,
    sign,
    submission,
)

__all__ = ["plain_settings"]
COMMANDS, INTERACTIONS, EVENTS = (
    f"/v1/slack/{name}" for name in ("commands", "interactions", "events")
)


@pytest.fixture(autouse=True)
def inbox_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the loop over the inbox, after its first look, away from requests under way.

    It may take a new one before its acknowledgement does, whose end these tests wait for.
    """
    monkeypatch.setattr(processing, "PERIOD_S", 3600.0)


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        yield fake


@pytest.fixture
def settings(plain_settings: Settings, slack: FakeSlack) -> Settings:
    return Settings.model_validate(
        {
            **plain_settings.model_dump(),
            "slack_signing_secret": SIGNING_SECRET,
            "slack_bot_token": TOKEN,
            "slack_api_base_url": slack.base_url,
        }
    )


async def send(client: httpx.AsyncClient, path: str, request: SignedRequest) -> httpx.Response:
    """Send a request as Slack does: without an API key."""
    headers = {**request.headers, "Authorization": ""}
    return await client.post(path, content=request.body, headers=headers)


@dataclass
class Person:
    """A Slack user who speaks to the service."""

    client: httpx.AsyncClient
    slack: FakeSlack
    user: str

    async def say(self, text: str) -> dict[str, Any]:
        """Send `/hillclimb TEXT` and return the reply."""
        before = len(self.slack.whispers)
        answer = await send(
            self.client, COMMANDS, sign(command(text, slack=self.slack, user=self.user))
        )
        assert (answer.status_code, answer.content) == (200, b"")
        (reply,) = self.slack.whispers[before:]
        return reply

    async def press(self, action_id: str, value: str, *, ts: str) -> httpx.Response:
        body = click(action_id, value, slack=self.slack, ts=ts, user=self.user)
        return await send(self.client, INTERACTIONS, sign(body))

    async def fill_in(self, values: dict[str, str], *, view_id: str = "V1") -> httpx.Response:
        body = submission(self.slack.views[-1], values, view_id=view_id, user=self.user)
        return await send(self.client, INTERACTIONS, sign(body))

    async def link(self, key: str = KEY) -> None:
        answer = await self.client.post("/v1/slack/link-codes", headers=bearer(key))
        assert answer.status_code == 201, answer.text
        reply = await self.say(f"link {answer.json()['code']}")
        assert reply["text"].startswith("Linked: ")


@pytest.fixture
def anna(client: httpx.AsyncClient, slack: FakeSlack) -> Person:
    return Person(client, slack, "U0ANNA")


@pytest.fixture
def ben(client: httpx.AsyncClient, slack: FakeSlack) -> Person:
    return Person(client, slack, "U0BEN")


def buttons(message: dict[str, Any]) -> dict[str, str]:
    """Values of the message's buttons by action."""
    rows = [block["elements"] for block in message["blocks"] if block["type"] == "actions"]
    return {each["action_id"]: each.get("value", "") for row in rows for each in row}
