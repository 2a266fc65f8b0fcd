"""One MCP session over streamable HTTP for an episode; `mcp` 1 and 2 differ in this file alone.

The library ties a session to the task that opened it, so a task of its own holds it open and others
send through it. Below the library lies our transport: it counts requests, keeps what the library
forgets of a refusal (status, `Retry-After`, `retryable`), and turns refusals and broken connections
into answers, which cost one request and not the session.

Differences of the two versions, all of them here: the HTTP library (`httpx` or `httpx2`), two or
three streams, the name of the error, whether a request is wrapped. Field names are read as they are
on the wire, which both versions agree on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from importlib import import_module
from importlib.metadata import version
from typing import Any, cast

import mcp.types as mcp_types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel, JsonValue, ValidationError

from trainer.envs.fleet.faults import (
    HIDDEN,
    SESSION_LOST,
    Refused,
    WireFault,
    odd,
    of_network,
    of_response,
    of_size,
)
from trainer.envs.fleet.persistence import IDLE_S, Meter
from trainer.storable import storable

IS_FIRST = version("mcp").startswith("1.")
_http = import_module("httpx" if IS_FIRST else "httpx2")
_mcp, _types = import_module("mcp"), import_module("mcp.types")
_McpError: type[Exception] = _mcp.McpError if IS_FIRST else _mcp.MCPError
_UNSENT = (_http.ConnectError, _http.ConnectTimeout, _http.PoolTimeout)

NOTIFICATION_S = 2.0
"""A notification has no answer to wait for, and a server that hangs would block what follows it."""
CLOSE_S = 2.0
MAX_TOOLS = 1000
"""More than these are a list that does not end."""
_SESSION_ID = "mcp-session-id"
_FOLLOWS = 300 if IS_FIRST else 400
"""From which status on an answer is a refusal: the second version of the library follows redirects
within an origin and answers for the others."""
_INVALID_REQUEST, _INVALID_PARAMS, _METHOD_NOT_FOUND, _INTERNAL = -32600, -32602, -32601, -32603
_CONNECTION_CLOSED, _REQUEST_TIMEOUT = -32000, -32001
"""Codes that the library gives to what it noticed itself."""
_log = logging.getLogger(__name__)


class _AtMost(_http.AsyncByteStream):  # type: ignore[misc, name-defined]
    """A body that ends in a fault where it is too large."""

    def __init__(self, body: Any, max_bytes: int) -> None:  # noqa: ANN401 - of either library
        self._body = body
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        num_bytes = 0
        async for part in self._body:
            num_bytes += len(part)
            if num_bytes > self._max_bytes:
                raise of_size(self._max_bytes)
            yield part

    async def aclose(self) -> None:
        """Close the body."""
        await self._body.aclose()


class _Wire(_http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
    """Carries the library's requests; `fault` is what became of the last one that was refused."""

    def __init__(self, meter: Meter, tls: ssl.SSLContext, max_bytes: int, key: str) -> None:
        self._inner = _http.AsyncHTTPTransport(
            verify=tls, limits=_http.Limits(keepalive_expiry=IDLE_S)
        )
        self._meter = meter
        self._max_bytes = max_bytes
        self._key = key
        self.fault: WireFault | None = None
        self.in_session = False
        """Whether the request of the fault named a session."""

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request; a refusal or a broken connection is kept and answered for."""
        if request.method == "GET":
            # The stream for what a server says on its own: Fleet says nothing, and a connection
            # held open for it would be one more per episode.
            return _http.Response(405, request=request)
        message = _object(request.content)
        method = str(message.get("method", ""))
        if method == "notifications/cancelled":
            # Whoever gives up a call opens another session: see `FleetEnv`.
            return _http.Response(202, request=request)
        self._meter.count("mcp_requests")
        limit = NOTIFICATION_S if method.startswith("notifications/") else None
        content = b""
        try:
            async with asyncio.timeout(limit):
                response = await self._answer(request)
        except WireFault as too_large:
            fault = too_large
        except (_http.TransportError, TimeoutError) as error:
            fault = of_network(error, was_sent=not isinstance(error, _UNSENT))
        else:
            if response.status_code < _FOLLOWS:
                return response
            content = response.content
            fault = of_response(response.status_code, response.headers, content, self._key)
        self.fault, self.in_session = fault, _SESSION_ID in request.headers
        if "id" not in message:
            return _http.Response(202, request=request)
        # As an answer: the first version would end the session over the status of a refusal.
        told = _object(content).get("error")
        said = told if _is_rpc_error(told) else {"code": _INTERNAL, "message": fault.message}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": said}).encode()
        kind = {"content-type": "application/json"}
        return _http.Response(200, headers=kind, content=body, request=request)

    async def _answer(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Return the answer, read here where it is no stream of events.

        The library would forget what went wrong while it reads.
        """
        response = await self._inner.handle_async_request(request)
        response.stream = _AtMost(response.stream, self._max_bytes)
        if response.status_code >= _FOLLOWS or _is_json(response):
            try:
                await response.aread()
            except WireFault:
                await response.aclose()
                raise
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class McpSession:
    """The tools of one instance. Its calls are made one after another.

    Every method raises `WireFault` when no answer comes.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        meter: Meter,
        tls: ssl.SSLContext,
        max_bytes: int,
    ) -> None:
        self._url = url
        self._headers = dict(headers)
        self._more = {} if IS_FIRST else {"max_sse_event_size": max_bytes}
        self._key = self._headers.get("Authorization", "").removeprefix("Bearer ")
        self._wire = _Wire(meter, tls, max_bytes, self._key)
        self._holder: asyncio.Task[None] | None = None
        self._session: ClientSession | None = None
        self._leave = asyncio.Event()

    async def open(self) -> None:
        """Connect and shake hands."""
        ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._holder = asyncio.create_task(self._hold(ready), name="mcp-session")
        try:
            self._session = await ready
        except BaseException:
            self.abandon()
            raise

    async def tools(self) -> tuple[dict[str, JsonValue], ...]:
        """Return all tools as they are on the wire."""
        found: list[dict[str, JsonValue]] = []
        cursor: str | None = None
        while True:
            params = mcp_types.PaginatedRequestParams(cursor=cursor)
            request = mcp_types.ListToolsRequest(method="tools/list", params=params)
            page = await self._ask(request, mcp_types.ListToolsResult)
            found += cast("list[dict[str, JsonValue]]", page.get("tools") or [])
            cursor = cast("str | None", page.get("nextCursor"))
            if not cursor:
                return tuple(found)
            if len(found) > MAX_TOOLS or not page.get("tools"):
                raise odd(f"the list of tools goes on after {len(found)}")

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a tool's result as it is on the wire.

        Raises:
            Refused: there is no such tool, or its arguments are wrong.
        """
        params = mcp_types.CallToolRequestParams(name=name, arguments=dict(arguments))
        request = mcp_types.CallToolRequest(method="tools/call", params=params)
        return await self._ask(request, mcp_types.CallToolResult)

    def abandon(self) -> None:
        """Let go of the session without waiting; `close` waits for it."""
        was_open, self._session = self._session is not None, None
        self._leave.set()
        if self._holder is not None and not was_open:
            # It shakes hands, perhaps with nobody.
            self._holder.cancel()

    async def close(self) -> None:
        """Let go of the session; the server forgets it with the instance."""
        holder, self._session = self._holder, None
        if holder is None:
            return
        self._leave.set()
        done, _ = await asyncio.wait([holder], timeout=CLOSE_S)
        if not done:
            holder.cancel()
            await asyncio.wait([holder], timeout=CLOSE_S)

    async def _hold(self, ready: asyncio.Future[ClientSession]) -> None:
        try:
            async with (
                _http.AsyncClient(
                    transport=self._wire, headers=self._headers, timeout=None
                ) as client,
                streamable_http_client(
                    self._url, http_client=client, terminate_on_close=False, **self._more
                ) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                try:
                    await session.initialize()
                except (_McpError, ValidationError, RuntimeError) as error:
                    if not ready.done():
                        ready.set_exception(self._why(error, is_open=False))
                    return
                if not ready.done():
                    ready.set_result(session)
                await self._leave.wait()
        except Exception as error:  # noqa: BLE001 - whoever waits for the session has to hear of it
            _log.debug("an MCP session ended", exc_info=True)
            if not ready.done():
                ready.set_exception(of_network(_innermost(error), was_sent=True))
        finally:
            if not ready.done():
                ready.cancel()

    async def _ask(self, request: BaseModel, result: type[BaseModel]) -> dict[str, JsonValue]:
        session, holder = self._session, self._holder
        if session is None or holder is None or holder.done():
            raise _lost("the session is closed")
        self._wire.fault = None
        try:
            answer = await session.send_request(_wrapped(request), result)
        except _McpError as error:
            raise self._why(error) from error
        except ValidationError as error:
            raise WireFault(
                kind="bad_answer",
                message=f"{error.error_count()} fields of the answer are wrong",
                is_transient=False,
                may_be_done=True,
            ) from error
        found: dict[str, JsonValue] = answer.model_dump(
            by_alias=True, mode="json", exclude_none=True, exclude_unset=True
        )
        return found

    def _why(self, error: Exception, *, is_open: bool = True) -> Exception:
        """Return what an error of the library stands for."""
        fault, self._wire.fault = self._wire.fault, None
        told = getattr(error, "error", None)
        code, message = getattr(told, "code", 0), str(getattr(told, "message", error))
        message = storable(message.replace(self._key, HIDDEN) if self._key else message)
        if code == _INVALID_PARAMS or (code == _METHOD_NOT_FOUND and fault is None):
            return Refused(message=message)
        if fault is not None:
            is_lost = fault.status == 404 or (
                # As the SDK's first servers say it; of a request that named none it is no loss.
                fault.status == 400 and self._wire.in_session and "session" in message.lower()
            )
            # While a session is opened, 404 is said of the instance.
            return _lost(message) if is_lost and is_open else fault
        if code == _INTERNAL:
            data = getattr(told, "data", None)
            asked = data.get("retryable") if isinstance(data, dict) else None
            return WireFault(
                kind="tool_crashed",
                message=message,
                is_transient=asked is not False,
                may_be_done=asked is not True,
            )
        if code in (_CONNECTION_CLOSED, _REQUEST_TIMEOUT):
            return of_network(error, was_sent=True)
        known = code == _INVALID_REQUEST
        return WireFault(
            kind=f"rpc_{code}" if told is not None else type(error).__name__,
            message=message,
            is_transient=False,
            may_be_done=True,
            is_known=known,
        )


def _wrapped(request: BaseModel) -> Any:  # noqa: ANN401 - of either library
    return _types.ClientRequest(request) if IS_FIRST else request


def _lost(message: str) -> WireFault:
    return WireFault(kind=SESSION_LOST, message=message, is_transient=True, may_be_done=False)


def _is_json(response: Any) -> bool:  # noqa: ANN401 - of either library
    return str(response.headers.get("content-type", "")).lower().startswith("application/json")


def _object(content: bytes) -> dict[str, Any]:
    try:
        said = json.loads(content)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _is_rpc_error(told: Any) -> bool:  # noqa: ANN401 - JSON
    """Tell whether a refusal's body is JSON-RPC's, which a server may send with any status."""
    return (
        isinstance(told, dict)
        and isinstance(told.get("code"), int)
        and isinstance(told.get("message"), str)
    )


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
