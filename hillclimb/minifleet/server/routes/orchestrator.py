"""Instances and what surrounds them: environments, regions, the account, runs."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import replace

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.envs.minifleet.catalog import APPS, find_task
from trainer.envs.minifleet.env import MinifleetEnv
from trainer.envs.minifleet.export import VERSION
from trainer.envs.minifleet.server.desk import Desk
from trainer.envs.minifleet.server.instances import CreateRequest, Instance, iso
from trainer.envs.minifleet.server.problems import Problem, not_found, parsed
from trainer.envs.minifleet.server.settings import REGIONS, TEAM_ID
from trainer.envs.minifleet.server.strikes import Strike
from trainer.envs.minifleet.server.wirerows import environment_row, instance_row, run_rows
from trainer.types import Task

REQUEST_ID = "x-request-id"


class Orchestrator:
    """The routes under `/v1/env`, the account and the regions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runner_token = desk.settings.runner_token or secrets.token_hex(16)

    def routes(self) -> list[Route]:
        """Return the routes; those of fixed paths stand before those with a name in them."""
        one = "/v1/env/instances/{instance_id}"
        table = (
            ("POST", "/v1/env/instances", self.create),
            ("GET", "/v1/env/instances", self.list_all),
            ("DELETE", "/v1/env/instances/batch", self.delete_run),
            ("GET", one, self.get),
            ("DELETE", one, self.delete),
            ("POST", f"{one}/heartbeat", self.beat),
            ("GET", "/v1/env/runs", self.runs),
            ("GET", "/v1/env/", self.environments),
            ("GET", "/v1/env/{env_key}", self.environment),
            ("GET", "/v1/regions", self.regions),
            ("GET", "/v1/account", self.account),
            ("GET", "/v1/runner-auth/token", self.runner_token),
        )
        keyed = self._desk.with_key
        return [Route(path, keyed(answer), methods=[method]) for method, path, answer in table]

    async def create(self, request: Request) -> Response:
        """Make an instance; a repeated request id is told which one it made."""
        strike = self._desk.draw("create")
        await strike.refuse(request)
        wanted = await parsed(request, CreateRequest)
        task, region = _task(wanted), _region(wanted)
        digest = hashlib.sha256(await request.body()).hexdigest()
        request_id = request.headers.get(REQUEST_ID)
        if request_id:
            duplicate = self._desk.instances.duplicate(request_id, digest)
            if duplicate is not None:
                raise duplicate
        instance = self._desk.instances.reserve(wanted, region, VERSION)
        if request_id:
            self._desk.instances.remember(request_id, digest, instance)
        env = MinifleetEnv(APPS[wanted.env_key], task)
        try:
            await strike.wait()
            await env.reset()
        except BaseException:
            self._desk.instances.end(instance, "start_failed")
            raise
        self._desk.instances.start(instance, env)
        strike.after()
        return self._row(request, instance)

    async def get(self, request: Request) -> Response:
        """Return an instance, running or ended."""
        instance = self._named(request)

        async def work(_: Strike) -> Response:
            return self._row(request, instance)

        return await self._desk.struck(request, "get", work, instance)

    async def delete(self, request: Request) -> Response:
        """End an instance; ending one that has ended is no error."""
        instance = self._named(request)

        async def work(_: Strike) -> Response:
            self._desk.instances.end(instance, "deleted")
            return self._row(request, instance)

        return await self._desk.struck(request, "delete", work, instance)

    async def beat(self, request: Request) -> Response:
        """Keep an instance alive until its next heartbeat is due."""
        instance = self._named(request)

        async def work(_: Strike) -> Response:
            alive = instance.is_alive
            answer: dict[str, JsonValue] = {"success": alive, "instance_id": instance.id}
            if alive and instance.request.heartbeat_interval is not None:
                self._desk.instances.beat(instance)
                answer |= {
                    "last_heartbeat": iso(instance.heartbeat_at),
                    "deadline_timestamp": instance.deadline,
                    "interval_seconds": instance.request.heartbeat_interval,
                }
            return JSONResponse(answer)

        return await self._desk.struck(request, "heartbeat", work, instance)

    async def list_all(self, request: Request) -> Response:
        """List instances: `status` (default: all that are alive), `region`, `run_id`."""
        query = request.query_params

        async def work(_: Strike) -> Response:
            found = [
                each
                for each in self._desk.instances
                if (each.status == query["status"] if "status" in query else each.is_alive)
                and query.get("region") in (None, each.region)
                and query.get("run_id") in (None, each.request.run_id)
            ]
            return self._rows(request, found)

        return await self._desk.struck(request, "list", work)

    async def delete_run(self, request: Request) -> Response:
        """End all instances of a run and return those that were alive."""
        run_id = request.query_params.get("run_id")
        if not run_id:
            raise Problem(400, "run_id is missing: profiles are not served here")

        async def work(_: Strike) -> Response:
            alive = [
                each
                for each in self._desk.instances
                if each.request.run_id == run_id and each.is_alive
            ]
            for instance in alive:
                self._desk.instances.end(instance, "deleted")
            return self._rows(request, alive)

        return await self._desk.struck(request, "delete", work)

    async def runs(self, request: Request) -> Response:
        """List runs; `active` (default `active`) is `active`, `inactive` or `all`."""
        wanted = request.query_params.get("active", "active")
        rows = run_rows(self._desk.instances)
        kept = [
            row
            for row in rows
            if wanted == "all" or (row["running_count"] != 0) == (wanted == "active")
        ]
        return JSONResponse(kept)

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
        """Return the account's limit and how much of it is used."""

        async def work(_: Strike) -> Response:
            instances = self._desk.instances
            return JSONResponse(
                {
                    "team_id": TEAM_ID,
                    "team_name": TEAM_ID,
                    "instance_limit": instances.limit,
                    "instance_count": len(instances),
                }
            )

        return await self._desk.struck(request, "account", work)

    async def runner_token(self, request: Request) -> Response:
        """Return the token that managers may ask for."""
        return JSONResponse({"token": self._runner_token})

    def _named(self, request: Request) -> Instance:
        return self._desk.instances.find(request.path_params["instance_id"])

    def _row(self, request: Request, instance: Instance) -> Response:
        return JSONResponse(instance_row(instance, str(request.base_url)))

    def _rows(self, request: Request, instances: list[Instance]) -> Response:
        base_url = str(request.base_url)
        return JSONResponse([instance_row(each, base_url) for each in instances])


def _task(wanted: CreateRequest) -> Task:
    """The task whose start state an instance begins with: its data, or the app's first task.

    The messages are worded as the official client tells its errors apart.
    """
    app = APPS.get(wanted.env_key)
    if app is None:
        raise Problem(400, f"Environment '{wanted.env_key}' not found")
    for version, noun in ((wanted.env_version, "Version"), (wanted.data_version, "Data version")):
        if version not in (None, "", VERSION):
            raise Problem(400, f"{noun} '{version}' not found for '{wanted.env_key}'")
    key = wanted.data_key or f"{app.key}/train/{app.templates[0].name}/000000"
    task = find_task(key)
    if task is None or task.env_key != app.key:
        raise Problem(400, f"Data '{key}' not found for '{wanted.env_key}'")
    variables = {name: str(value) for name, value in (wanted.env_variables or {}).items()}
    return replace(task, env_variables={**task.env_variables, **variables})


def _region(wanted: CreateRequest) -> str:
    region = wanted.region or REGIONS[0]
    if region not in REGIONS:
        raise Problem(400, f"Region {region} not supported. Please use {[*REGIONS]}")
    return region
