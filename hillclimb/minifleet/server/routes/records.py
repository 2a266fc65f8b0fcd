"""Tasks, verifiers and sessions: what the account holds beside its instances."""

from __future__ import annotations

import secrets
import time

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from trainer.envs.minifleet.server.desk import Desk
from trainer.envs.minifleet.server.problems import Problem, json_object, not_found, parsed
from trainer.envs.minifleet.server.strikes import Strike
from trainer.envs.minifleet.server.taskbook import NewTask, TaskUpdate
from trainer.envs.minifleet.server.verifiers import (
    ExecuteRequest,
    Graded,
    NotRegistered,
    grade,
    resolve,
)


class Records:
    """The routes of tasks, verifiers and sessions."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[Route]:
        """Return the routes; keys of tasks have slashes."""
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
        keyed = self._desk.with_key
        return [Route(path, keyed(answer), methods=[method]) for method, path, answer in table]

    async def list_tasks(self, request: Request) -> Response:
        """List tasks: `env_key`, `task_keys` (any number), `data_id`, `data_version`."""
        query = request.query_params

        async def work(_: Strike) -> Response:
            rows = self._desk.book.listing(
                query.get("env_key"),
                query.getlist("task_keys"),
                (query.get("data_id"), query.get("data_version")),
            )
            return JSONResponse({"tasks": rows, "total": len(rows)})

        return await self._desk.struck(request, "tasks", work)

    async def get_task(self, request: Request) -> Response:
        """Return a task, listed or not."""

        async def work(_: Strike) -> Response:
            return JSONResponse(self._desk.book.row(request.path_params["key"]))

        return await self._desk.struck(request, "tasks", work)

    async def update_task(self, request: Request) -> Response:
        """Change a task until the server ends."""
        change = await parsed(request, TaskUpdate)
        return JSONResponse(self._desk.book.update(request.path_params["key"], change))

    async def add_task(self, request: Request) -> Response:
        """Add a task until the server ends."""
        return JSONResponse(self._desk.book.add(await parsed(request, NewTask)))

    async def check(self, request: Request) -> Response:
        """Tell whether a hash is that of verifier source served here."""

        async def work(_: Strike) -> Response:
            key = self._desk.book.key_of_hash(request.query_params.get("sha256", ""))
            return JSONResponse({"success": key is not None, "key": key})

        return await self._desk.struck(request, "check", work)

    async def get_verifier(self, request: Request) -> Response:
        """Return the verifier of a task; the task's key is its id."""
        row = self._desk.book.row(request.path_params["key"])
        if not row.get("verifier"):
            raise not_found("Verifier", request.path_params["key"])
        return JSONResponse(row["verifier"])

    async def execute(self, request: Request) -> Response:
        """Grade an instance; whatever a verifier cannot do is `success` false."""
        wanted, begun = await parsed(request, ExecuteRequest), time.perf_counter()
        instance = self._desk.instances.find(wanted.instance_id())

        async def work(strike: Strike) -> Response:
            answer = {"success": False} | self._graded(wanted, instance.id, strike)
            answer["execution_id"] = f"exec_{secrets.token_hex(8)}"
            answer["execution_time_ms"] = round(1000 * (time.perf_counter() - begun))
            return JSONResponse(answer)

        return await self._desk.struck(request, "verify", work, instance)

    def _graded(
        self, wanted: ExecuteRequest, instance_id: str, strike: Strike
    ) -> dict[str, JsonValue]:
        if strike.crashes:
            return _failed("RuntimeError", "the verifier crashed (injected)")
        try:
            expected = resolve(wanted, self._desk.book)
            env = self._desk.instances.find(instance_id).running_env()
        except NotRegistered as error:
            return _failed("VerifierNotRegistered", str(error))
        except Problem as problem:
            if problem.status == 400:
                raise
            return _failed("InstanceNotRunning", str(problem.detail))
        graded = grade(expected, env)
        if strike.judge_fails:
            graded = Graded(0, f"{graded.stdout}JUDGE ERROR: no answer from the judge (injected)\n")
        if strike.has_no_result:
            return {"success": True, "result": None, "stdout": ""}
        return {"success": True, "result": graded.result, "stdout": graded.stdout}

    async def ingest(self, request: Request) -> Response:
        """Count a session's messages; their text is not kept."""
        body = await json_object(request)

        async def work(_: Strike) -> Response:
            given, messages = body.get("session_id"), body.get("messages", body.get("history", []))
            if not isinstance(messages, list):
                raise Problem(422, "messages is not a list")
            session = given if isinstance(given, str) and given else f"sess_{secrets.token_hex(8)}"
            is_new = session not in self._desk.sessions
            self._desk.sessions[session] += len(messages) + (body.get("response") is not None)
            return JSONResponse(
                {
                    "success": True,
                    "session_id": session,
                    "message_count": self._desk.sessions[session],
                    "created_new_session": is_new,
                }
            )

        return await self._desk.struck(request, "session", work)

    async def trace_job(self, request: Request) -> Response:
        """Name a job that sessions may refer to."""
        job_id, name = f"job_{secrets.token_hex(8)}", (await json_object(request)).get("name")
        return JSONResponse({"job_id": job_id, "name": name or job_id, "status": "created"})


def _failed(kind: str, message: str) -> dict[str, JsonValue]:
    return {"success": False, "error": {"type": kind, "message": message, "traceback": ""}}
