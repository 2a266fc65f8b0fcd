"""The connection of Socket Mode: Slack sends requests over it, and each is acknowledged there.

The library reconnects when Slack asks for it or the connection ends, and asks for a new address
each time. What it has received and not acknowledged, Slack sends again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import ClientError
from slack_sdk.errors import SlackApiError
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse
from slack_sdk.socket_mode.websockets import SocketModeClient
from slack_sdk.web.async_client import AsyncWebClient
from websockets.exceptions import WebSocketException

from api.notices.errors import SlackRefused, SlackUnavailable
from api.notices.slack.web_api import TRANSIENT_ERRORS

PING_S = 5.0
"""Interval of pings, and of the checks that notice an ended connection."""
OPEN_S = 10
"""Timeout of a call for the address of a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SocketEnvelope:
    """A request as it arrives, with the id under which it is acknowledged."""

    id: str
    type: str
    payload: Mapping[str, Any] = field(repr=False)


Take = Callable[[SocketEnvelope], Awaitable[Mapping[str, Any] | None]]
"""Stores a request and returns what its acknowledgement says; one that raises is not acknowledged.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackSocket:
    """An open connection."""

    client: SocketModeClient = field(repr=False)

    async def is_connected(self) -> bool:
        """Return False while the connection is away: the library is reconnecting then."""
        return bool(await self.client.is_connected())


@asynccontextmanager
async def open_socket(app_token: str, base_url: str, take: Take) -> AsyncIterator[SlackSocket]:
    """Yield the connection of an app-level token; each request is taken, then acknowledged.

    Raises:
        SlackUnavailable: Slack cannot be reached, or has failed.
        SlackRefused: Slack does not accept the token, or Socket Mode is not enabled.
    """
    web_client = AsyncWebClient(base_url=base_url.rstrip("/") + "/", timeout=OPEN_S)
    client = SocketModeClient(app_token, web_client=web_client, ping_interval=PING_S)

    async def on_request(client: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        envelope = SocketEnvelope(
            id=str(request.envelope_id), type=str(request.type), payload=request.payload
        )
        answer = await take(envelope)
        await client.send_socket_mode_response(
            SocketModeResponse(envelope.id, payload=None if answer is None else dict(answer))
        )

    client.socket_mode_request_listeners.append(on_request)
    try:
        await _connect(client)
        yield SlackSocket(client=client)
    finally:
        await client.close()  # type: ignore[no-untyped-call]


async def _connect(client: SocketModeClient) -> None:
    try:
        await client.connect()  # type: ignore[no-untyped-call]
    except SlackApiError as error:
        # A proxy's page, or that of an outage, names no error.
        code = str(error.response.get("error") or f"HTTP {error.response.status_code}")
        if code in TRANSIENT_ERRORS or code.startswith("HTTP "):
            raise SlackUnavailable(code) from error
        raise SlackRefused(code) from error
    except (TimeoutError, ClientError, WebSocketException, OSError) as error:
        raise SlackUnavailable(f"{type(error).__name__}: {error}") from error


def silence_library() -> None:
    """Keep the library's own debug messages, which quote requests, out of the log."""
    for name in ("slack_sdk", "websockets", "aiohttp"):
        logging.getLogger(name).setLevel(logging.WARNING)
