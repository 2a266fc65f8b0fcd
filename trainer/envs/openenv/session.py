"""One session of an OpenEnv server: openenv-core's client with our headers and timeouts."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Mapping
from typing import Any

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from hillclimb.spec.environment.openenv import OpenEnvServer
from hillclimb.spec.hosts import is_loopback
from trainer.envs.openenv.loading import client_alone

with client_alone():
    from openenv.core.generic_client import GenericEnvClient

MIN_SECRET = 4
"""Shorter values of headers are words, not secrets."""
GOODBYE_TIMEOUT_S = 3.0
"""Longest wait for the server to confirm that a session is over."""
FAULTS = (OSError, WebSocketException, ValueError)
"""Errors of a connection that was refused, lost, timed out (an OSError) or sent invalid data."""
_log = logging.getLogger(__name__)


class _Connecting(connect):
    """A connection to the address of the spec and to no other, whatever the server says.

    websockets takes `Authorization` out of the headers for another server, and no other header: the
    secrets of a spec may be in any.
    """

    def process_redirect(self, exc: Exception) -> Exception:
        """Return the redirect as the error that it is here."""
        return exc


class SessionRefused(Exception):
    """The server answered with an error.

    `code` is one of OpenEnv's `WSErrorCode`; `errors` are pydantic's where an action was not valid.
    """

    def __init__(self, code: str, message: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.errors = errors


class OpenEnvSession(GenericEnvClient):
    """A client that never outlives its episode; waiting is bounded by whoever waits.

    Raises, from `reset`, `step` and `state`:
        Refusal: the server answered with an error.
        FAULTS: no answer came.
    """

    def __init__(self, server: OpenEnvServer, headers: Mapping[str, str]) -> None:
        super().__init__(
            server.url,
            connect_timeout_s=server.connect_timeout_s,
            message_timeout_s=math.inf,
            max_message_size_mb=server.max_message_mib,
            mode="simulation",
        )
        self._headers = dict(headers)
        self._is_waiting = False
        """An answer is due: after a cancelled wait the next message would be taken for another."""

    async def connect(self) -> OpenEnvSession:
        """Open the connection, around any proxy when the server is on this machine.

        openenv-core's own takes no headers, and changes `NO_PROXY` of the whole process meanwhile.
        There is no keep-alive: a server busy with a long call must not be taken for a dead one.
        """
        if self._ws is None:
            self._ws = await _Connecting(
                self._ws_url,
                additional_headers=self._headers,
                proxy=None if is_loopback(self._ws_url) else True,
                open_timeout=self._connect_timeout,
                ping_interval=None,
                max_size=self._max_message_size,
            )
        return self

    async def close(self) -> None:
        """Say goodbye and wait until the server has ended the session; cut off one that is silent.

        openenv-core's own closes at once, which leaves the server to find nobody there: it logs an
        error for each session, and the session counts a while longer.
        """
        connection, self._ws = self._ws, None
        if connection is None:
            return
        try:
            if not self._is_waiting:
                async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                    await connection.send(json.dumps({"type": "close"}))
                    await connection.wait_closed()
        except FAULTS:
            _log.debug("%s did not say goodbye", self._ws_url)
        finally:
            connection.transport.abort()

    async def _send_and_receive(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._ensure_connected()
        if self._is_waiting:
            raise ConnectionError("an earlier answer is still due")
        self._is_waiting = True
        try:
            await self._send(message)
        except ConnectionClosed:
            # A server that refuses a session says why and closes: its word is still to be read.
            response = await self._receive()
        else:
            response = await self._receive()
        self._is_waiting = False
        if response.get("type") == "error":
            data = response.get("data", {})
            text = self._redacted(str(data.get("message")))
            raise SessionRefused(str(data.get("code")), text, list(data.get("errors", ())))
        return response

    def _redacted(self, message: str) -> str:
        """Return a server's message without the secrets of the headers, which it may repeat."""
        for value in self._headers.values():
            message = message.replace(value, "[hidden]") if len(value) >= MIN_SECRET else message
        return message


async def action_schema(server: OpenEnvServer, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON Schema of the actions that a server accepts.

    Raises:
        httpx.HTTPError: the server does not answer, or not with a schema.
    """
    url = "http" + server.url.rstrip("/").removeprefix("ws").removeprefix("http")
    async with httpx.AsyncClient(
        headers=dict(headers),
        timeout=server.connect_timeout_s,
        trust_env=not is_loopback(url),
    ) as client:
        async with client.stream("GET", f"{url}/schema") as response:
            response.raise_for_status()
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > server.max_message_mib << 20:
                    raise httpx.DecodingError(
                        f"a schema larger than max_message_mib ({server.max_message_mib} MiB)",
                        request=response.request,
                    )
        try:
            schema = json.loads(content)["action"]
        except (ValueError, KeyError, TypeError) as fault:
            raise httpx.DecodingError("no schema of actions", request=response.request) from fault
    if not isinstance(schema, dict):
        raise httpx.DecodingError("no schema of actions", request=response.request)
    return schema
