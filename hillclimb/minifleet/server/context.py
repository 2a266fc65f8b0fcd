"""Shared state of the routes, with the checks that all make: API key and injected faults."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from hillclimb.minifleet.server.faults.injection import FaultCounter, InjectedFault, RequestFaults
from hillclimb.minifleet.server.faults.plan import Operation
from hillclimb.minifleet.server.problems import FleetProblem
from hillclimb.minifleet.server.settings import MinifleetSettings
from hillclimb.minifleet.server.state.instances import Instance, InstanceTable
from hillclimb.minifleet.server.state.task_registry import TaskRegistry

Work = Callable[[InjectedFault], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True, kw_only=True)
class AppContext:
    """The server's state, passed to every group of routes."""

    settings: MinifleetSettings
    instances: InstanceTable
    faults: RequestFaults
    tasks: TaskRegistry
    requests: Counter[str] = field(default_factory=Counter)
    """Number of requests by operation."""
    sessions: Counter[str] = field(default_factory=Counter)
    """Number of messages by ingested session."""
    shared_counter: FaultCounter = field(default_factory=lambda: FaultCounter("account"))

    def draw(self, operation: Operation, counter: FaultCounter | None = None) -> InjectedFault:
        """Count a request and draw its faults."""
        self.requests[operation] += 1
        return self.faults.draw(operation, counter or self.shared_counter)

    async def with_faults(
        self, request: Request, operation: Operation, work: Work, instance: Instance | None = None
    ) -> Response:
        """Execute a request with the faults drawn for it.

        Raises:
            Problem: an injected failure, or what `work` raises.
        """
        fault = self.draw(operation, instance.counter if instance else None)
        await fault.before(request)
        if instance is not None and fault.expires:
            self.instances.end(instance, "ttl_expired")
        response = await work(fault)
        fault.after()
        return response

    def check_key(self, request: Request, *, needed: bool = True) -> None:
        """Check the API key; with `needed` false only where the request sends one.

        Raises:
            Problem: 401.
        """
        header = request.headers.get("authorization")
        if header is None and not needed:
            return
        expected = f"Bearer {self.settings.api_key}"
        if header is None or not hmac.compare_digest(header.encode(), expected.encode()):
            word = "Invalid" if header else "Missing"
            raise FleetProblem(401, f"{word} API key: send `Authorization: Bearer KEY`")

    def with_key(self, handler: Handler) -> Handler:
        """Return a handler that checks the API key first."""

        async def checked(request: Request) -> Response:
            self.check_key(request)
            return await handler(request)

        return checked
