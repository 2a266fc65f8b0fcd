"""Routes of instances, environments, regions, runs and the account."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS, find_task
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.export import VERSION
from hillclimb.minifleet.server.context import AppContext
from hillclimb.minifleet.server.faults.injection import InjectedFault
from hillclimb.minifleet.server.problems import FleetProblem, not_found, parsed
from hillclimb.minifleet.server.responses import environment_row, instance_row, run_rows
from hillclimb.minifleet.server.settings import REGIONS, TEAM_ID
from hillclimb.minifleet.server.state.instances import CreateRequest, Instance, iso

REQUEST_ID = "x-request-id"


class Orchestrator:
    """The routes under `/v1/env`, the account and the regions."""

    def __init__(self, context: AppContext) -> None:
        self._context = context
        self._runner_token = context.settings.runner_token or secrets.token_hex(16)

    def routes(self) -> list[Route]:
        """Return the routes; fixed paths come before those with a parameter."""
        one = "/v1/env/instances/{instance_id}"
        table = (
            ("POST", "/v1/env/instances", self.create),
            ("GET", "/v1/env/instances", self.list_all),
            ("DELETE", "/v1/env/instances/batch", self.delete_run),
            ("GET", one, self.get),
            ("DELETE", one, self.delete),
            ("POST", f"{one}/heartbeat", self.heartbeat),
            ("GET", "/v1/env/runs", self.runs),
            ("GET", "/v1/env/", self.environments),
            ("GET", "/v1/env/{env_key}", self.environment),
            ("GET", "/v1/regions", self.regions),
            ("GET", "/v1/account", self.account),
            ("GET", "/v1/runner-auth/token", self.runner_token),
        )
        keyed = self._context.with_key
        return [Route(path, keyed(answer), methods=[method]) for method, path, answer in table]

    async def create(self, request: Request) -> Response:
        """Create an instance; a repeated request id gets a problem that names the first one."""
        fault = self._context.draw("create")
        await fault.refuse(request)
        body = await parsed(request, CreateRequest)
        await fault.come_late()
        task, region = _task(body), _region(body)
        digest = hashlib.sha256(await request.body()).hexdigest()
        request_id = request.headers.get(REQUEST_ID)
        if request_id:
            duplicate = self._context.instances.duplicate(request_id, digest)
            if duplicate is not None:
                raise duplicate
        instance = self._context.instances.reserve(body, region, VERSION)
        if request_id:
            self._context.instances.remember(request_id, digest, instance)
        env = MinifleetEnv(APPS[body.env_key], task)
        try:
            await fault.wait()
            await env.reset()
        except BaseException:
            self._context.instances.end(instance, "start_failed")
            raise
        self._context.instances.start(instance, env)
        fault.after()
        return self._row(request, instance)

    async def get(self, request: Request) -> Response:
        """Return an instance, running or ended."""
        instance = self._instance(request)

        async def work(_: InjectedFault) -> Response:
            return self._row(request, instance)

        return await self._context.with_faults(request, "get", work, instance)

    async def delete(self, request: Request) -> Response:
        """End an instance; it is no error where it has ended already."""
        instance = self._instance(request)

        async def work(_: InjectedFault) -> Response:
            self._context.instances.end(instance, "deleted")
            return self._row(request, instance)

        return await self._context.with_faults(request, "delete", work, instance)

    async def heartbeat(self, request: Request) -> Response:
        """Record a heartbeat, which keeps an instance alive until the next one is due."""
        instance = self._instance(request)

        async def work(_: InjectedFault) -> Response:
            alive = instance.is_alive
            answer: dict[str, JsonValue] = {"success": alive, "instance_id": instance.id}
            if alive and instance.request.heartbeat_interval is not None:
                self._context.instances.heartbeat(instance)
                answer |= {
                    "last_heartbeat": iso(instance.heartbeat_at),
                    "deadline_timestamp": instance.deadline,
                    "interval_seconds": instance.request.heartbeat_interval,
                }
            return JSONResponse(answer)

        return await self._context.with_faults(request, "heartbeat", work, instance)

    async def list_all(self, request: Request) -> Response:
        """List instances: `status` (default: all that are alive), `region`, `run_id`."""
        query = request.query_params

        async def work(_: InjectedFault) -> Response:
            instances = [
                each
                for each in self._context.instances
                if (each.status == query["status"] if "status" in query else each.is_alive)
                and query.get("region") in (None, each.region)
                and query.get("run_id") in (None, each.request.run_id)
            ]
            return self._rows(request, instances)

        return await self._context.with_faults(request, "list", work)

    async def delete_run(self, request: Request) -> Response:
        """End all instances of a run and return those that were alive."""
        run_id = request.query_params.get("run_id")
        if not run_id:
            raise FleetProblem(400, "run_id is missing: profiles are not served here")

        async def work(_: InjectedFault) -> Response:
            alive = [
                each
                for each in self._context.instances
                if each.request.run_id == run_id and each.is_alive
            ]
            for instance in alive:
                self._context.instances.end(instance, "deleted")
            return self._rows(request, alive)

        return await self._context.with_faults(request, "delete", work)

    async def runs(self, request: Request) -> Response:
        """List runs; `active` (default `active`) is `active`, `inactive` or `all`."""
        activity = request.query_params.get("active", "active")
        rows = run_rows(self._context.instances)
        selected = [
            row
            for row in rows
            if activity == "all" or (row["running_count"] != 0) == (activity == "active")
        ]
        return JSONResponse(selected)

    async def environments(self, request: Request) -> Response:
        """List the environments."""
        return JSONResponse([environment_row(app) for app in APPS.values()])

    async def environment(self, request: Request) -> Response:
        """Return one environment."""
        app = APPS.get(request.path_params["env_key"])
        if app is None:
            raise not_found("Environment", request.path_params["env_key"])
        return JSONResponse(environment_row(app))

    async def regions(self, request: Request) -> Response:
        """List the regions; all are this machine."""
        return JSONResponse(list(REGIONS))

    async def account(self, request: Request) -> Response:
        """Return the account's limit and number of instances."""

        async def work(_: InjectedFault) -> Response:
            instances = self._context.instances
            return JSONResponse(
                {
                    "team_id": TEAM_ID,
                    "team_name": TEAM_ID,
                    "instance_limit": instances.limit,
                    "instance_count": len(instances),
                }
            )

        return await self._context.with_faults(request, "account", work)

    async def runner_token(self, request: Request) -> Response:
        """Return the token that managers may require."""
        return JSONResponse({"token": self._runner_token})

    def _instance(self, request: Request) -> Instance:
        return self._context.instances.find(request.path_params["instance_id"])

    def _row(self, request: Request, instance: Instance) -> Response:
        return JSONResponse(instance_row(instance, str(request.base_url)))

    def _rows(self, request: Request, instances: list[Instance]) -> Response:
        base_url = str(request.base_url)
        return JSONResponse([instance_row(each, base_url) for each in instances])


def _task(body: CreateRequest) -> Task:
    """Return the task whose start state the instance has: its data, or the app's first task.

    The official client classifies errors by these texts.
    """
    app = APPS.get(body.env_key)
    if app is None:
        raise FleetProblem(400, f"Environment '{body.env_key}' not found")
    for version, noun in ((body.env_version, "Version"), (body.data_version, "Data version")):
        if version not in (None, "", VERSION):
            raise FleetProblem(400, f"{noun} '{version}' not found for '{body.env_key}'")
    key = body.data_key or f"{app.key}/train/{app.templates[0].name}/000000"
    task = find_task(key)
    if task is None or task.env_key != app.key:
        raise FleetProblem(400, f"Data '{key}' not found for '{body.env_key}'")
    variables = {name: str(value) for name, value in (body.env_variables or {}).items()}
    return replace(task, env_variables={**task.env_variables, **variables})


def _region(body: CreateRequest) -> str:
    region = body.region or REGIONS[0]
    if region not in REGIONS:
        raise FleetProblem(400, f"Region {region} not supported. Please use {[*REGIONS]}")
    return region
