"""Administration routes, for clients on this machine: faults, limits, statistics."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, NonNegativeInt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hillclimb.minifleet.server.context import AppContext, Handler
from hillclimb.minifleet.server.faults.plan import FaultRule, WireFaults
from hillclimb.minifleet.server.problems import FleetProblem, parsed
from hillclimb.spec.hosts import is_loopback_host


class Limit(BaseModel):
    """Body of `PUT /admin/limit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_limit: NonNegativeInt


class Admin:
    """The routes under `/admin`; they require the API key and a client on this machine."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """Return the routes."""
        table = (
            ("GET", "/admin/faults", self.show),
            ("PUT", "/admin/faults", self.replace),
            ("POST", "/admin/faults", self.add),
            ("PUT", "/admin/limit", self.limit),
            ("POST", "/admin/instances/{instance_id}/expire", self.expire),
            ("GET", "/admin/stats", self.stats),
        )
        return [
            Route(path, self._local(answer), methods=[method]) for method, path, answer in table
        ]

    def _local(self, handler: Handler) -> Handler:
        async def checked(request: Request) -> Response:
            host = request.client.host if request.client else ""
            if not is_loopback_host(host):
                raise FleetProblem(403, "/admin answers only on the loopback interface")
            self._context.check_key(request)
            return await handler(request)

        return checked

    async def show(self, request: Request) -> Response:
        """Return the faults in force."""
        return JSONResponse(self._context.faults.current().model_dump(mode="json"))

    async def replace(self, request: Request) -> Response:
        """Replace all faults; the time windows of the new ones begin now."""
        self._context.faults.replace(await parsed(request, WireFaults))
        return await self.show(request)

    async def add(self, request: Request) -> Response:
        """Add a fault rule, whose time window begins now: an outage is a rule with `for_s`."""
        self._context.faults.add(await parsed(request, FaultRule))
        return await self.show(request)

    async def limit(self, request: Request) -> Response:
        """Change the limit of instances; running ones are not ended."""
        self._context.instances.limit = (await parsed(request, Limit)).instance_limit
        return JSONResponse({"instance_limit": self._context.instances.limit})

    async def expire(self, request: Request) -> Response:
        """End an instance as if its time to live were over."""
        instance = self._context.instances.find(request.path_params["instance_id"])
        self._context.instances.end(instance, "ttl_expired")
        return JSONResponse({"instance_id": instance.id, "ended": instance.end_reason})

    async def stats(self, request: Request) -> Response:
        """Return counters since the start: requests, faults, instances by end reason."""
        instances = self._context.instances
        return JSONResponse(
            {
                "requests": dict(self._context.requests),
                "faults": dict(self._context.faults.num_injected),
                "instances": {
                    "created": instances.num_created,
                    "running": len(instances),
                    "ended": dict(instances.num_ended),
                },
                "sessions": len(self._context.sessions),
            }
        )
