"""Routes of the account's tasks, verifiers and sessions."""

from __future__ import annotations

import secrets
import time

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.server.context import AppContext
from hillclimb.minifleet.server.faults.injection import InjectedFault
from hillclimb.minifleet.server.problems import FleetProblem, json_object, not_found, parsed
from hillclimb.minifleet.server.state.task_registry import NewTask, TaskUpdate
from hillclimb.minifleet.server.state.verifiers import (
    ExecuteRequest,
    InstanceNotRunning,
    VerifierFailure,
    VerifierResult,
    grade,
    resolve,
)


class Records:
    """The routes of tasks, verifiers and sessions."""

    def __init__(self, context: AppContext) -> None:
        self._context = context

    def routes(self) -> list[Route]:
        """Return the routes; task keys contain slashes."""
        table = (
            ("GET", "/v1/tasks", self.list_tasks),
            ("POST", "/v1/tasks", self.add_task),
            ("GET", "/v1/tasks/{key:path}", self.get_task),
            ("PUT", "/v1/tasks/{key:path}", self.update_task),
            ("GET", "/v1/verifiers/check", self.check),
            ("POST", "/v1/verifiers/execute", self.execute),
            ("GET", "/v1/verifiers/{key:path}", self.get_verifier),
            ("POST", "/v1/sessions/ingest", self.ingest),
            ("POST", "/v1/traces/logs", self.ingest),
            ("POST", "/v1/traces/jobs", self.trace_job),
        )
        keyed = self._context.with_key
        return [Route(path, keyed(answer), methods=[method]) for method, path, answer in table]

    async def list_tasks(self, request: Request) -> Response:
        """List tasks: `env_key`, `task_keys` (any number), `data_id`, `data_version`."""
        query = request.query_params

        async def work(_: InjectedFault) -> Response:
            rows = self._context.tasks.listing(
                query.get("env_key"),
                query.getlist("task_keys"),
                (query.get("data_id"), query.get("data_version")),
            )
            return JSONResponse({"tasks": rows, "total": len(rows)})

        return await self._context.with_faults(request, "tasks", work)

    async def get_task(self, request: Request) -> Response:
        """Return a task, listed or not."""

        async def work(_: InjectedFault) -> Response:
            return JSONResponse(self._context.tasks.row(request.path_params["key"]))

        return await self._context.with_faults(request, "tasks", work)

    async def update_task(self, request: Request) -> Response:
        """Change a task until the server ends."""
        change = await parsed(request, TaskUpdate)
        return JSONResponse(self._context.tasks.update(request.path_params["key"], change))

    async def add_task(self, request: Request) -> Response:
        """Add a task until the server ends."""
        return JSONResponse(self._context.tasks.add(await parsed(request, NewTask)))

    async def check(self, request: Request) -> Response:
        """Tell whether a hash is that of an uploaded bundle, or of this server's own source."""

        async def work(_: InjectedFault) -> Response:
            sha256, tasks = request.query_params.get("sha256", ""), self._context.tasks
            key = tasks.key_of_bundle(sha256) or tasks.key_of_hash(sha256)
            return JSONResponse({"success": key is not None, "key": key})

        return await self._context.with_faults(request, "check", work)

    async def get_verifier(self, request: Request) -> Response:
        """Return the verifier of a task; the task's key is its id."""
        row = self._context.tasks.row(request.path_params["key"])
        if not row.get("verifier"):
            raise not_found("Verifier", request.path_params["key"])
        return JSONResponse(row["verifier"])

    async def execute(self, request: Request) -> Response:
        """Grade an instance; a verifier that cannot run has `success` false."""
        body, started = await parsed(request, ExecuteRequest), time.perf_counter()
        instance = self._context.instances.find(body.instance_id())

        async def work(fault: InjectedFault) -> Response:
            answer = {"success": False} | self._grade(body, instance.id, fault)
            answer["execution_id"] = f"exec_{secrets.token_hex(8)}"
            answer["execution_time_ms"] = round(1000 * (time.perf_counter() - started))
            return JSONResponse(answer)

        return await self._context.with_faults(request, "verify", work, instance)

    def _grade(
        self, body: ExecuteRequest, instance_id: str, fault: InjectedFault
    ) -> dict[str, JsonValue]:
        if fault.crashes:
            return _failed("RuntimeError", "the verifier crashed (injected)")
        try:
            expected = resolve(body, self._context.tasks)
            env = self._running_env(instance_id)
        except VerifierFailure as failure:
            return _failed(failure.kind, str(failure))
        result = grade(expected, env)
        if fault.judge_fails:
            result = VerifierResult(
                0, f"{result.stdout}JUDGE ERROR: no answer from the judge (injected)\n"
            )
        if fault.has_no_result:
            return {"success": True, "result": None, "stdout": ""}
        return {"success": True, "result": result.result, "stdout": result.stdout}

    def _running_env(self, instance_id: str) -> MinifleetEnv:
        try:
            return self._context.instances.find(instance_id).running_env()
        except FleetProblem as problem:
            raise InstanceNotRunning(str(problem.detail)) from problem

    async def ingest(self, request: Request) -> Response:
        """Count a session's messages; their text is discarded."""
        body = await json_object(request)

        async def work(_: InjectedFault) -> Response:
            session_id, messages = (
                body.get("session_id"),
                body.get("messages", body.get("history", [])),
            )
            if not isinstance(messages, list):
                raise FleetProblem(422, "messages is not a list")
            session = (
                session_id
                if isinstance(session_id, str) and session_id
                else f"sess_{secrets.token_hex(8)}"
            )
            is_new = session not in self._context.sessions
            self._context.sessions[session] += len(messages) + (body.get("response") is not None)
            return JSONResponse(
                {
                    "success": True,
                    "session_id": session,
                    "message_count": self._context.sessions[session],
                    "created_new_session": is_new,
                }
            )

        return await self._context.with_faults(request, "session", work)

    async def trace_job(self, request: Request) -> Response:
        """Name a job that sessions may refer to."""
        job_id, name = f"job_{secrets.token_hex(8)}", (await json_object(request)).get("name")
        return JSONResponse({"job_id": job_id, "name": name or job_id, "status": "created"})


def _failed(kind: str, message: str) -> dict[str, JsonValue]:
    return {"success": False, "error": {"type": kind, "message": message, "traceback": ""}}
