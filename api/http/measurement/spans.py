"""Spans of requests: the root of a run's trace, or the continuation of the client's."""

from __future__ import annotations

import re

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hillclimb.process import tracing

UNTRACED = re.compile(
    r"/metrics|/static/.*|/v1/health.*|/v1/ingest|.*/(stream|heartbeat|claim)|/v1/attempts/.*"
)
"""Paths that machines poll, and streams: their spans would hide the others."""


class RequestSpan:
    """Outermost middleware: while tracing is on, a span for each request, named by its route.

    The header `traceparent` of a client makes it a part of the client's trace.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Trace an HTTP request; pass everything through while tracing is off."""
        if not tracing.is_tracing() or scope["type"] != "http" or UNTRACED.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
        else:
            await self._trace(scope, receive, send)

    async def _trace(self, scope: Scope, receive: Receive, send: Send) -> None:
        parent = Headers(scope=scope).get("traceparent", "")
        method = str(scope["method"])
        with tracing.span(method, parent=parent, is_request=True) as begun:
            if begun is None:
                await self._app(scope, receive, send)
                return
            begun.set_attribute("http.request.method", method)

            async def traced(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = getattr(scope.get("route"), "path", "unmatched")
                    begun.update_name(f"{method} {route}")
                    begun.set_attribute("http.route", route)
                    begun.set_attribute("http.response.status_code", message["status"])
                await send(message)

            await self._app(scope, receive, traced)
