"""One MCP session over streamable HTTP for an episode; `mcp` 1 and 2 differ in this file alone.

The library ties a session to the task that opened it, so a separate task keeps it open and others
send through it. Below the library is our transport: it counts requests, records what the library
drops of a refusal (status, `Retry-After`, `retryable`), and turns refusals and broken connections
into responses, which cost one request and not the session.

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

from hillclimb.environment.sanitize import sanitize_unicode
from hillclimb.process.network.addresses import AllowedHosts
from hillclimb.process.network.connections import direct_transport
from trainer.envs.fleet.wire.faults import (
    SESSION_LOST,
    CallRefused,
    WireFault,
    odd,
    of_network,
    of_response,
    of_size,
    redact_key,
)
from trainer.envs.fleet.wire.retry import IDLE_S, Meter

IS_FIRST = version("mcp").startswith("1.")
_http = import_module("httpx" if IS_FIRST else "httpx2")
_core = import_module("httpcore" if IS_FIRST else "httpcore2")
_mcp, _types = import_module("mcp"), import_module("mcp.types")
_McpError: type[Exception] = _mcp.McpError if IS_FIRST else _mcp.MCPError
_UNSENT = (_http.ConnectError, _http.ConnectTimeout, _http.PoolTimeout)

NOTIFICATION_S = 2.0
"""Timeout of a notification, which has no response: a hung server would block the next call."""
CLOSE_S = 2.0
MAX_TOOLS = 1000
"""A longer list of tools is taken for one that does not end."""
_SESSION_ID = "mcp-session-id"
_FOLLOWS = 300 if IS_FIRST else 400
"""Lowest status of a refusal: the second version of the library follows redirects within an origin
and raises for the others."""
_INVALID_REQUEST, _INVALID_PARAMS, _METHOD_NOT_FOUND, _INTERNAL = -32600, -32602, -32601, -32603
_CONNECTION_CLOSED, _REQUEST_TIMEOUT = -32000, -32001
"""Codes of the library's own errors."""
_log = logging.getLogger(__name__)


class _LimitedBody(_http.AsyncByteStream):  # type: ignore[misc, name-defined]
    """A response body that raises a `WireFault` where it is too large."""

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


class _Transport(_http.AsyncBaseTransport):  # type: ignore[misc, name-defined]
    """HTTP transport of the library's requests; `fault` is the fault of the last refused one."""

    def __init__(
        self, meter: Meter, tls: ssl.SSLContext, max_bytes: int, key: str, allowed: AllowedHosts
    ) -> None:
        limits = _http.Limits(keepalive_expiry=IDLE_S)
        self._inner = direct_transport(allowed, tls=tls, limits=limits, http=_http, core=_core)
        self._meter = meter
        self._max_bytes = max_bytes
        self._key = key
        self.fault: WireFault | None = None
        self.in_session = False
        """True where the request of the fault named a session."""

    async def handle_async_request(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Send one request; a refusal or a broken connection is recorded and becomes a response."""
        if request.method == "GET":
            # The stream of the server's notifications: Fleet sends none, and it would cost one more
            # connection per episode.
            return _http.Response(405, request=request)
        message = _object(request.content)
        method = str(message.get("method", ""))
        if method == "notifications/cancelled":
            # After an abandoned call another session is opened: see `FleetEnv`.
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
        # As a response: the first version would end the session over the status of a refusal.
        refusal = _object(content).get("error")
        rpc_error = (
            refusal if _is_rpc_error(refusal) else {"code": _INTERNAL, "message": fault.message}
        )
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": rpc_error}).encode()
        kind = {"content-type": "application/json"}
        return _http.Response(200, headers=kind, content=body, request=request)

    async def _answer(self, request: Any) -> Any:  # noqa: ANN401 - of either library
        """Return the response, read here unless it is a stream of events.

        The library would drop an error that occurs while it reads.
        """
        response = await self._inner.handle_async_request(request)
        response.stream = _LimitedBody(response.stream, self._max_bytes)
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
    """The MCP session of one instance. Its calls are made one after another.

    Every method raises `WireFault` where no response comes.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        meter: Meter,
        tls: ssl.SSLContext,
        max_bytes: int,
        allowed: AllowedHosts,
    ) -> None:
        self._url = url
        self._headers = dict(headers)
        self._options = {} if IS_FIRST else {"max_sse_event_size": max_bytes}
        self._key = self._headers.get("Authorization", "").removeprefix("Bearer ")
        self._transport = _Transport(meter, tls, max_bytes, self._key, allowed)
        self._task: asyncio.Task[None] | None = None
        self._session: ClientSession | None = None
        self._stop = asyncio.Event()

    async def open(self) -> None:
        """Connect and initialize the session."""
        ready: asyncio.Future[ClientSession] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(ready), name="mcp-session")
        try:
            self._session = await ready
        except BaseException:
            self.abandon()
            raise

    async def tools(self) -> tuple[dict[str, JsonValue], ...]:
        """Return all tools in MCP's format."""
        tools: list[dict[str, JsonValue]] = []
        cursor: str | None = None
        while True:
            params = mcp_types.PaginatedRequestParams(cursor=cursor)
            request = mcp_types.ListToolsRequest(method="tools/list", params=params)
            page = await self._ask(request, mcp_types.ListToolsResult)
            tools += cast("list[dict[str, JsonValue]]", page.get("tools") or [])
            cursor = cast("str | None", page.get("nextCursor"))
            if not cursor:
                return tuple(tools)
            if len(tools) > MAX_TOOLS or not page.get("tools"):
                raise odd(f"the list of tools goes on after {len(tools)}")

    async def call(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Call a tool and return its result in MCP's format.

        Raises:
            CallRefused: there is no such tool, or its arguments are wrong.
        """
        params = mcp_types.CallToolRequestParams(name=name, arguments=dict(arguments))
        request = mcp_types.CallToolRequest(method="tools/call", params=params)
        return await self._ask(request, mcp_types.CallToolResult)

    def abandon(self) -> None:
        """Start to end the session without waiting; `close` waits for it."""
        was_open, self._session = self._session is not None, None
        self._stop.set()
        if self._task is not None and not was_open:
            # It is initializing, perhaps with a server that never responds.
            self._task.cancel()

    async def close(self) -> None:
        """End the session; the server deletes its side with the instance."""
        task, self._session = self._task, None
        if task is None:
            return
        self._stop.set()
        done, _ = await asyncio.wait([task], timeout=CLOSE_S)
        if not done:
            task.cancel()
            await asyncio.wait([task], timeout=CLOSE_S)

    async def _run(self, ready: asyncio.Future[ClientSession]) -> None:
        try:
            async with (
                _http.AsyncClient(
                    transport=self._transport, headers=self._headers, timeout=None
                ) as client,
                streamable_http_client(
                    self._url, http_client=client, terminate_on_close=False, **self._options
                ) as streams,
                ClientSession(streams[0], streams[1]) as session,
            ):
                try:
                    await session.initialize()
                except (_McpError, ValidationError, RuntimeError) as error:
                    if not ready.done():
                        ready.set_exception(self._translate(error, is_open=False))
                    return
                if not ready.done():
                    ready.set_result(session)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - raised to the waiter of `ready`
            _log.debug("an MCP session ended", exc_info=True)
            if not ready.done():
                ready.set_exception(of_network(_innermost(error), was_sent=True))
        finally:
            if not ready.done():
                ready.cancel()

    async def _ask(self, request: BaseModel, result: type[BaseModel]) -> dict[str, JsonValue]:
        session, task = self._session, self._task
        if session is None or task is None or task.done():
            raise _lost("the session is closed")
        self._transport.fault = None
        try:
            answer = await session.send_request(_wrapped(request), result)
        except _McpError as error:
            raise self._translate(error) from error
        except ValidationError as error:
            raise WireFault(
                kind="bad_answer",
                message=f"{error.error_count()} fields of the answer are wrong",
                is_transient=False,
                may_be_done=True,
            ) from error
        content: dict[str, JsonValue] = answer.model_dump(
            by_alias=True, mode="json", exclude_none=True, exclude_unset=True
        )
        return content

    def _translate(self, error: Exception, *, is_open: bool = True) -> Exception:
        """Translate an error of the library."""
        fault, self._transport.fault = self._transport.fault, None
        rpc_error = getattr(error, "error", None)
        code, message = getattr(rpc_error, "code", 0), str(getattr(rpc_error, "message", error))
        message = sanitize_unicode(redact_key(message, self._key))
        if code == _INVALID_PARAMS or (code == _METHOD_NOT_FOUND and fault is None):
            return CallRefused(message=message)
        if fault is not None:
            is_lost = fault.status == 404 or (
                # The SDK's first servers; a request that named no session lost none.
                fault.status == 400 and self._transport.in_session and "session" in message.lower()
            )
            # While a session is being opened, 404 refers to the instance.
            return _lost(message) if is_lost and is_open else fault
        if code == _INTERNAL:
            data = getattr(rpc_error, "data", None)
            retryable = data.get("retryable") if isinstance(data, dict) else None
            return WireFault(
                kind="tool_crashed",
                message=message,
                is_transient=retryable is not False,
                may_be_done=retryable is not True,
            )
        if code in (_CONNECTION_CLOSED, _REQUEST_TIMEOUT):
            return of_network(error, was_sent=True)
        known = code == _INVALID_REQUEST
        return WireFault(
            kind=f"rpc_{code}" if rpc_error is not None else type(error).__name__,
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
        value = json.loads(content)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _is_rpc_error(error: Any) -> bool:  # noqa: ANN401 - JSON
    """Tell whether a refusal's body is JSON-RPC's, which a server may send with any status."""
    return (
        isinstance(error, dict)
        and isinstance(error.get("code"), int)
        and isinstance(error.get("message"), str)
    )


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error
