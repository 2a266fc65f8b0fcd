"""Outermost middleware: request ids, body sizes, unexpected errors, headers of every response."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problems import CONTENT_TYPE, INTERNAL, TOO_LARGE, TOO_SLOW, Kind, body_of, headers_of
from api.tables.ids import new_id

REQUEST_ID = "x-request-id"
ACCEPTED_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
BODY_IDLE_S = 30.0
"""Longest wait for the next piece of a body (seconds)."""
MAX_BODY_BYTES = 1_000_000
MAX_FORM_BYTES = 16_000
"""Room for a sign-in form, which anybody may send: a key, a code and a path."""
MAX_BODY_BYTES_AT: Mapping[str, int] = {
    "/v1/ingest": 24_000_000,
    "/login": MAX_FORM_BYTES,
    "/login/oidc/accept": MAX_FORM_BYTES,
    "/logout": MAX_FORM_BYTES,
}
"""`/v1/ingest` has room for the outcomes of `hillclimb.spec.run.MAX_ROLLOUTS` rollouts."""
DEFAULT_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
}
"""Of responses that set none of their own: they are data, and no browser is to run or frame them.
Pages have others (`dashboard/headers.py`)."""
UPLOAD = re.compile(r"/v1/datasets/[^/]+/versions|/v1/imports/[^/]+")
"""Paths whose body is streamed to a file: their limit is a setting."""
EXCLUSIONS = re.compile(r"/v1/datasets/[^/]+/exclusions")
MAX_EXCLUSIONS_BYTES = 10_000_000
"""Room for the largest number of exclusions of a request, each with a long reason."""

log = logging.getLogger(__name__)


class _BodyStalled(Exception):
    """Nothing more of the body arrived."""


class _BodyTooLarge(Exception):
    """The body exceeds the limit of its path."""


class RequestEdge:
    """Adds a request id to every response; responds with 413 and 500 as problem+json.

    A 500 has only the id; the log has the traceback under the same id.
    """

    def __init__(
        self, app: ASGIApp, max_upload_bytes: int, body_idle_s: float = BODY_IDLE_S
    ) -> None:
        self._app = app
        self._body_idle_s = body_idle_s
        self._max_upload_bytes = max_upload_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle an HTTP request; pass other kinds of connections through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(
            scope, receive, send, self._max_bytes(scope["path"]), self._body_idle_s
        )
        try:
            exchange.check_length()
            await self._app(scope, exchange.receive, exchange.send)
        except (_BodyTooLarge, _BodyStalled):
            pass
        except Exception:
            log.exception("request %s failed", exchange.request_id)
            await exchange.answer(INTERNAL, "Internal error; it has been logged.")
        if exchange.is_stalled:
            limit = f"{self._body_idle_s:g} s"
            await exchange.answer(TOO_SLOW, f"Nothing of the body arrived for {limit}.")
        if exchange.is_too_large:
            limit = f"{exchange.max_bytes:,} bytes"
            await exchange.answer(TOO_LARGE, f"The body may have at most {limit}.")

    def _max_bytes(self, path: str) -> int:
        if UPLOAD.fullmatch(path):
            return self._max_upload_bytes
        if EXCLUSIONS.fullmatch(path):
            return MAX_EXCLUSIONS_BYTES
        return MAX_BODY_BYTES_AT.get(path, MAX_BODY_BYTES)


class _Exchange:
    """One request and its response on their way through."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, max_bytes: int, idle_s: float
    ) -> None:
        self._receive, self._send = receive, send
        self._path: str = scope["path"]
        self._headers = Headers(scope=scope)
        client_id = self._headers.get(REQUEST_ID, "")
        self.request_id = client_id if ACCEPTED_ID.fullmatch(client_id) else new_id("req")
        self.max_bytes = max_bytes
        self.is_too_large = False
        self.is_stalled = False
        self._idle_s = idle_s
        self._is_body_complete = False
        self._num_bytes = 0
        self._has_started = False
        scope.setdefault("state", {})["request_id"] = self.request_id

    def check_length(self) -> None:
        """Reject a body whose Content-Length is too large, before reading it."""
        length = self._headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.max_bytes:
            self._refuse()

    async def receive(self) -> Message:
        """Receive a message of the client and count its bytes."""
        if self._is_body_complete:
            return await self._receive()
        try:
            async with asyncio.timeout(self._idle_s):
                message = await self._receive()
        except TimeoutError:
            self.is_stalled = True
            raise _BodyStalled from None
        self._is_body_complete = not message.get("more_body", False)
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self.max_bytes:
            self._refuse()
        return message

    async def send(self, message: Message) -> None:
        """Send a message of the application, unless the body was too large."""
        if (self.is_too_large or self.is_stalled) and not self._has_started:
            return
        if message["type"] == "http.response.start":
            self._has_started = True
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self.request_id
            for name, value in DEFAULT_HEADERS.items():
                headers.setdefault(name, value)
        await self._send(message)

    async def answer(self, kind: Kind, detail: str) -> None:
        """Respond with a problem, unless a response has started."""
        if self._has_started:
            return
        self._has_started = True
        problem = body_of(kind, detail, path=self._path, request_id=self.request_id)
        await self._send({"type": "http.response.start", **self._head(kind)})
        await self._send({"type": "http.response.body", "body": json.dumps(problem).encode()})

    def _head(self, kind: Kind) -> dict[str, Any]:
        headers = {
            "content-type": CONTENT_TYPE,
            REQUEST_ID: self.request_id,
            **DEFAULT_HEADERS,
            "connection": "close",
            **headers_of(kind),
        }
        raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        return {"status": kind.status.value, "headers": raw}

    def _refuse(self) -> None:
        self.is_too_large = True
        raise _BodyTooLarge
