"""One session of an OpenEnv server: openenv-core's client with our headers and timeouts."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.process.network.connections import (
    CheckedTransport,
    check_server,
    connected_socket,
    proxy_of,
)
from hillclimb.spec.environment.openenv import OpenEnvServer
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
    """A connection that follows no redirect.

    For another server websockets drops the header `Authorization` only, and a spec may have
    secrets in any header.
    """

    def process_redirect(self, exc: Exception) -> Exception:
        """Return the redirect itself, which is raised as an error."""
        return exc


class SessionRefused(Exception):
    """The server answered with an error.

    `code` is one of OpenEnv's `WSErrorCode`; `errors` are pydantic's for an invalid action.
    """

    def __init__(self, code: str, message: str, errors: list[dict[str, Any]]) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.errors = errors


class OpenEnvSession(GenericEnvClient):
    """A client for one episode, without timeouts of its own: the caller bounds each wait.

    Raises, from `reset`, `step` and `state`:
        SessionRefused: the server responded with an error.
        FAULTS: no response came.
    """

    def __init__(
        self, server: OpenEnvServer, headers: Mapping[str, str], allowed: AllowedHosts
    ) -> None:
        super().__init__(
            server.url,
            connect_timeout_s=server.connect_timeout_s,
            message_timeout_s=math.inf,
            max_message_size_mb=server.max_message_mib,
            mode="simulation",
        )
        self._headers = dict(headers)
        self._allowed = allowed
        self._is_waiting = False
        """True until the response to the last message has arrived. After a cancelled wait it would
        be mistaken for the response to the next message."""

    async def connect(self) -> OpenEnvSession:
        """Open the connection to a checked address, or through the environment's proxy.

        openenv-core's own method takes no headers, and temporarily changes the whole process's
        `NO_PROXY`. Keep-alive is off: a server busy with a long call must not be taken for dead.
        """
        if self._ws is None:
            proxy = proxy_of(self._ws_url)
            if proxy is not None:
                await check_server(self._ws_url, self._allowed)
            async with asyncio.timeout(self._connect_timeout):
                self._ws = await _Connecting(
                    self._ws_url,
                    additional_headers=self._headers,
                    proxy=proxy,
                    sock=await self._socket() if proxy is None else None,
                    open_timeout=self._connect_timeout,
                    ping_interval=None,
                    max_size=self._max_message_size,
                )
        return self

    async def _socket(self) -> socket.socket:
        parts = urlsplit(self._ws_url)
        port = parts.port or (443 if parts.scheme == "wss" else 80)
        return await connected_socket(parts.hostname or "", port, self._allowed)

    async def close(self) -> None:
        """Send `close` and wait until the server ends the session; cut a silent server off.

        openenv-core's own method disconnects at once: the server then logs an error per session,
        and counts the session against its limit for a while.
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
            _log.debug("%s did not confirm the end of a session", self._ws_url)
        finally:
            connection.transport.abort()

    async def _send_and_receive(self, message: dict[str, Any]) -> dict[str, Any]:
        await self._ensure_connected()
        if self._is_waiting:
            raise ConnectionError("the response to an earlier message is still outstanding")
        self._is_waiting = True
        try:
            await self._send(message)
        except ConnectionClosed:
            # A server that refuses a session sends the reason before it closes: read that.
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


async def action_schema(
    server: OpenEnvServer, headers: Mapping[str, str], allowed: AllowedHosts
) -> dict[str, Any]:
    """Return the JSON Schema of the actions that a server accepts.

    Raises:
        httpx.HTTPError: the server does not answer, or not with a schema.
    """
    url = "http" + server.url.rstrip("/").removeprefix("ws").removeprefix("http")
    async with httpx.AsyncClient(
        headers=dict(headers),
        timeout=server.connect_timeout_s,
        transport=CheckedTransport(allowed),
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
