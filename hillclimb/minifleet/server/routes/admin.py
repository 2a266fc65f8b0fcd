"""The server's own controls, for people and tests on this machine: faults, limits, figures."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, NonNegativeInt
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.contract.hosts import is_loopback_host
from trainer.envs.minifleet.server.desk import Desk, Handler
from trainer.envs.minifleet.server.problems import Problem, parsed
from trainer.envs.minifleet.server.wirefaults import FaultRule, WireFaults


class Limit(BaseModel):
    """Body of `PUT /admin/limit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    instance_limit: NonNegativeInt


class Admin:
    """The routes under `/admin`; they need the API key and a client on this machine."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

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
                raise Problem(403, "/admin answers only on the loopback interface")
            self._desk.check_key(request)
            return await handler(request)

        return checked

    async def show(self, request: Request) -> Response:
        """Return the faults in force."""
        return JSONResponse(self._desk.striker.current().model_dump(mode="json"))

    async def replace(self, request: Request) -> Response:
        """Put a fault file's content in force; its windows of time begin now."""
        self._desk.striker.replace(await parsed(request, WireFaults))
        return await self.show(request)

    async def add(self, request: Request) -> Response:
        """Add one rule, whose window of time begins now: an outage is a rule with `for_s`."""
        self._desk.striker.add(await parsed(request, FaultRule))
        return await self.show(request)

    async def limit(self, request: Request) -> Response:
        """Change how many instances may run; those that run go on."""
        self._desk.instances.limit = (await parsed(request, Limit)).instance_limit
        return JSONResponse({"instance_limit": self._desk.instances.limit})

    async def expire(self, request: Request) -> Response:
        """End an instance as if its time to live were over."""
        instance = self._desk.instances.find(request.path_params["instance_id"])
        self._desk.instances.end(instance, "ttl_expired")
        return JSONResponse({"instance_id": instance.id, "ended": instance.ended})

    async def stats(self, request: Request) -> Response:
        """Return what happened since the start: requests, faults, instances by how they ended."""
        instances = self._desk.instances
        return JSONResponse(
            {
                "requests": dict(self._desk.requests),
                "faults": dict(self._desk.striker.struck),
                "instances": {
                    "created": instances.created,
                    "running": len(instances),
                    "ended": dict(instances.ended),
                },
                "sessions": len(self._desk.sessions),
            }
        )
