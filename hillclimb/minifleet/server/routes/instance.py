"""Routes of an instance's manager: reset, the app's databases, their difference."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable

from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.server.context import AppContext
from hillclimb.minifleet.server.faults.injection import InjectedFault
from hillclimb.minifleet.server.faults.plan import Operation
from hillclimb.minifleet.server.problems import FleetProblem, not_found, parsed
from hillclimb.minifleet.server.state import databases
from hillclimb.minifleet.server.state.databases import DiffFilter, QueryRefused
from hillclimb.minifleet.server.state.instances import Instance, iso

DATABASES = ("seed", "current")
NO_CODE = "this server runs no code that a client sends; grade by POST /v1/verifiers/execute"
Answer = Callable[[MinifleetEnv], Awaitable[JsonValue]]


class QueryBody(BaseModel):
    """Body of a query; `read_only` false is refused, as tools are the only way to change state."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    query: str
    args: list[JsonValue] | None = None
    read_only: bool = True


class IgnoreBody(BaseModel):
    """Exclusions of a structured diff."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    tables: list[str] = []
    fields: list[str] = []
    table_fields: dict[str, list[str]] = {}


class DiffBody(BaseModel):
    """Body of a structured diff."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ignore_config: IgnoreBody = IgnoreBody()


class InstanceManager:
    """The manager routes of every instance."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """Return the paths under `{root}api/v1/env`."""
        base = "/{instance_id}/api/v1/env"
        database = f"{base}/resources/sqlite/{{database}}"
        return [
            Route(f"{base}/reset", self.reset, methods=["POST"]),
            Route(f"{base}/health", self.health, methods=["GET"]),
            Route(f"{base}/resources", self.resources, methods=["GET"]),
            Route(f"{database}/describe", self.describe, methods=["GET"]),
            Route(f"{database}/query", self.query, methods=["POST"]),
            Route(f"{base}/diff/structured", self.diff, methods=["POST"]),
            Route(f"{base}/snapshot", self.refuse_code, methods=["POST"]),
            Route(f"{base}/execute_verifier_function", self.refuse_code, methods=["POST"]),
            Route(
                f"{base}/execute_verifier_function_with_upload", self.refuse_code, methods=["POST"]
            ),
        ]

    async def reset(self, request: Request) -> Response:
        """Start over from the seed; `seed` and `timestamp` have no effect."""

        async def answer(env: MinifleetEnv) -> JsonValue:
            await env.reset()
            return {"success": True, "message": "the environment is at its start state"}

        return await self._with_faults(request, "reset", answer)

    async def health(self, request: Request) -> Response:
        """Report that the instance runs."""
        now = iso(self._context.instances.clock())

        async def answer(_: MinifleetEnv) -> JsonValue:
            return {"status": "healthy", "timestamp": now, "service": "minifleet"}

        return await self._with_faults(request, "resources", answer)

    async def resources(self, request: Request) -> Response:
        """List the two databases."""

        async def answer(_: MinifleetEnv) -> JsonValue:
            return {
                "resources": [{"name": name, "type": "sqlite", "mode": "ro"} for name in DATABASES]
            }

        return await self._with_faults(request, "resources", answer)

    async def describe(self, request: Request) -> Response:
        """Describe a database's tables."""
        name = _database(request)

        async def answer(env: MinifleetEnv) -> JsonValue:
            tables = databases.schema(databases.columns_of(*env.tables()))
            named: dict[str, JsonValue] = {"success": True, "resource_name": name}
            return named | {"tables": tables, "message": "the app's tables"}

        return await self._with_faults(request, "resources", answer)

    async def query(self, request: Request) -> Response:
        """Run one read-only SQL statement; one that SQLite refuses has `success` false."""
        name, body = _database(request), await parsed(request, QueryBody)

        async def answer(env: MinifleetEnv) -> JsonValue:
            if not body.read_only:
                text = "databases are read-only here: change state through the tools"
                return {"success": False, "error": text, "message": text}
            states = env.tables()
            try:
                columns, rows = databases.query(
                    states[DATABASES.index(name)],
                    databases.columns_of(*states),
                    body.query,
                    body.args or [],
                )
            except QueryRefused as refusal:
                return {"success": False, "error": str(refusal), "message": "the query failed"}
            table: dict[str, JsonValue] = {"columns": list(columns), "rows": list(rows)}
            return {"success": True, "message": f"{len(rows)} rows", **table}

        return await self._with_faults(request, "resources", answer)

    async def diff(self, request: Request) -> Response:
        """Return the difference between `seed` and `current`."""
        body = await parsed(request, DiffBody)

        async def answer(env: MinifleetEnv) -> JsonValue:
            exclusions = DiffFilter(**body.ignore_config.model_dump())
            diff = databases.structured_diff(*env.tables(), exclusions)
            return {"success": True, "diff": diff, "message": "current against seed"}

        return await self._with_faults(request, "resources", answer)

    async def refuse_code(self, request: Request) -> Response:
        """Refuse to run code or to store a snapshot."""
        self._instance(request)
        return JSONResponse({"success": False, "error": NO_CODE, "message": NO_CODE})

    async def _with_faults(
        self, request: Request, operation: Operation, answer: Answer
    ) -> Response:
        instance = self._instance(request)

        async def work(_: InjectedFault) -> Response:
            return JSONResponse(await answer(instance.running_env()))

        return await self._context.with_faults(request, operation, work, instance)

    def _instance(self, request: Request) -> Instance:
        """Return the path's instance after a check of key and token (404 without one)."""
        token = self._context.settings.runner_token
        header = request.headers.get("x-runner-token", "")
        if token is not None and not hmac.compare_digest(header.encode(), token.encode()):
            raise FleetProblem(404, "not found")
        self._context.check_key(request, needed=False)
        return self._context.instances.find(request.path_params["instance_id"])


def _database(request: Request) -> str:
    name: str = request.path_params["database"]
    if name not in DATABASES:
        raise not_found("Database", name)
    return name
