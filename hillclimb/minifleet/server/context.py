"""What every route needs: who asks, which instance, and which faults strike the request."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from trainer.envs.minifleet.server.instances import Instance, Instances
from trainer.envs.minifleet.server.problems import Problem
from trainer.envs.minifleet.server.settings import ServerSettings
from trainer.envs.minifleet.server.strikes import Lane, Strike, Striker
from trainer.envs.minifleet.server.taskbook import TaskBook
from trainer.envs.minifleet.server.wirefaults import Operation

Work = Callable[[Strike], Awaitable[Response]]
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(slots=True, kw_only=True)
class Desk:
    """The server's whole state."""

    settings: ServerSettings
    instances: Instances
    striker: Striker
    book: TaskBook
    requests: Counter[str] = field(default_factory=Counter)
    """Requests by operation."""
    sessions: Counter[str] = field(default_factory=Counter)
    """Messages by ingested session."""
    shared_lane: Lane = field(default_factory=lambda: Lane("account"))

    def draw(self, operation: Operation, lane: Lane | None = None) -> Strike:
        """Count a request and return its faults."""
        self.requests[operation] += 1
        return self.striker.draw(operation, lane or self.shared_lane)

    async def struck(
        self, request: Request, operation: Operation, work: Work, instance: Instance | None = None
    ) -> Response:
        """Answer a request under its faults.

        Raises:
            Problem: an injected failure, or what `work` raises.
        """
        strike = self.draw(operation, instance.lane if instance else None)
        await strike.before(request)
        if instance is not None and strike.expires:
            self.instances.end(instance, "ttl_expired")
        response = await work(strike)
        strike.after()
        return response

    def check_key(self, request: Request, *, needed: bool = True) -> None:
        """Check the API key; without `needed` only one that is sent.

        Raises:
            Problem: 401.
        """
        sent = request.headers.get("authorization")
        if sent is None and not needed:
            return
        right = f"Bearer {self.settings.api_key}"
        if sent is None or not hmac.compare_digest(sent.encode(), right.encode()):
            word = "Invalid" if sent else "Missing"
            raise Problem(401, f"{word} API key: send `Authorization: Bearer KEY`")

    def with_key(self, handler: Handler) -> Handler:
        """Return the handler for requests that carry the API key."""

        async def checked(request: Request) -> Response:
            self.check_key(request)
            return await handler(request)

        return checked
