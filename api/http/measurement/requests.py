"""Durations of requests by method, route template and status, as a Prometheus histogram.

Each of several API processes writes to a file of its own; a scrape reads all of them, so it does
not matter which one answers. The files of a process that died still count.
"""

from __future__ import annotations

import os
import time

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.live.serving.shared import DURATIONS_VARIABLE

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
UNMATCHED, OTHER = "unmatched", "other"
STATE_KEY = "request_registry"
"""Name of the registry in a request's state."""


class RequestTimer:
    """Outermost middleware: measures the time from a request to the start of its response.

    A stream counts until its first byte, so that open streams are not slow requests. Labels are
    route templates and never paths, so no id or name becomes one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.registry = CollectorRegistry()
        self._exposed = self.registry
        if (shared := os.environ.get(DURATIONS_VARIABLE)) is not None:
            self._exposed = CollectorRegistry()
            MultiProcessCollector(self._exposed, path=shared)  # type: ignore[no-untyped-call]
        self._durations = Histogram(
            "hillclimb_http_request_duration_seconds",
            "Time from a request to the start of its response.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Time an HTTP request; pass other kinds of connections through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope.setdefault("state", {})[STATE_KEY] = self._exposed
        started = time.perf_counter()

        async def measured(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._observe(scope, message["status"], time.perf_counter() - started)
            await send(message)

        await self._app(scope, receive, measured)

    def _observe(self, scope: Scope, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in METHODS else OTHER
        route = getattr(scope.get("route"), "path", UNMATCHED)
        self._durations.labels(method, route, str(status)).observe(seconds)
