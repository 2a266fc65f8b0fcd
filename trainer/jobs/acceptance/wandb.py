"""The ladder `wandb`: a run at W&B by the sink that runs use, read back over the public API."""

from __future__ import annotations

import asyncio
import socket
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from hillclimb.process.acceptance.ladder import AcceptanceCheck, CheckFailed
from hillclimb.protocol.rundir import AttemptDir
from hillclimb.spec.hosts import is_private
from hillclimb.spec.run import RunSpec
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.wandb_run import API_KEY, open_online
from trainer.inputs.accepted_paths import WANDB_URL, wandb_url

NUM_STEPS = 3
METRIC = "accept/step"
READ_S = 60.0
"""How long the server may take until it returns what was logged."""
ANSWER_S = 10.0
LATE = (
    "check that this machine reaches W&B (proxy, firewall), and the address in"
    f" {WANDB_URL} (unset: W&B's own)"
)
IN_TROUBLE = "try again later: the server is in trouble"
OTHER_SERVER = f"correct {WANDB_URL}: what answers there has not W&B's API"
WRONG_KEY = f"set {API_KEY} to a key of this server, and {WANDB_URL} to the key's server"
VIEWER = "query { viewer { username entity } }"
RUN = """
query Run($project: String!, $entity: String!, $name: String!) {
  project(name: $project, entityName: $entity) { run(name: $name) { id state historyLineCount } }
}
"""
DELETE = """
mutation DeleteRun($id: ID!) { deleteRun(input: {id: $id}) { clientMutationId } }
"""


class WandbLadder:
    """Logs a tiny run, reads it back and deletes it."""

    def __init__(self, environ: Mapping[str, str], *, project: str, entity: str | None) -> None:
        self._key, self._url = environ.get(API_KEY, ""), wandb_url(environ)
        self._project, self._entity = project, entity
        self._run_dir = tempfile.TemporaryDirectory()
        self._run = f"accept-{uuid.uuid4().hex[:12]}"
        self._name, self._id = "", ""

    @property
    def checks(self) -> Sequence[AcceptanceCheck]:
        """The checks, in order."""
        return (
            self._check("key", self._ask_who),
            self._check("logged", self._log, limit_s=120.0),
            self._check("read_back", self._read, limit_s=READ_S + 30.0),
            self._check("deleted", self._delete),
        )

    async def close(self) -> None:
        """Delete the files; a run that was read back is deleted by the last check."""
        self._run_dir.cleanup()

    def _check(
        self, name: str, act: Callable[[], Awaitable[str]], *, limit_s: float = 40.0
    ) -> AcceptanceCheck:
        async def explained() -> str:
            try:
                return await act()
            except httpx.TimeoutException as late:
                raise CheckFailed(f"{self._url} did not answer in {ANSWER_S:g} s", LATE) from late
            except httpx.HTTPError as error:
                why = f"{self._url} cannot be reached: {_why_unreachable(error)}"
                raise CheckFailed(why, LATE) from error

        return AcceptanceCheck(name=name, act=explained, limit_s=limit_s, late=LATE)

    async def _ask_who(self) -> str:
        if not self._key:
            raise CheckFailed("there is no key", f"set {API_KEY} in this environment")
        if not self._url.startswith(("http://", "https://")):
            raise CheckFailed(
                f"{WANDB_URL} is {self._url!r}", "write it as https://HOST or http://HOST:PORT"
            )
        if not is_private(self._url):
            raise CheckFailed(
                f"the key would travel in the clear to {self._url}", f"set {WANDB_URL} to https://…"
            )
        viewer = (await self._ask(VIEWER, {})).get("viewer")
        if not isinstance(viewer, dict):
            raise CheckFailed(f"{self._url} knows nobody with this key", WRONG_KEY)
        self._entity = self._entity or str(viewer.get("entity"))
        return f"{viewer.get('username', '?')} at {self._url}, entity {self._entity}"

    async def _log(self) -> str:
        spec = RunSpec.model_validate(
            {
                "name": "hillclimb accept",
                "experimental": True,
                "data": {"env_keys": ["booking"]},
                "tracking": {
                    "wandb": {"mode": "online", "project": self._project, "entity": self._entity}
                },
            }
        )
        run_dir = AttemptDir(Path(self._run_dir.name) / self._run, 1)
        run_dir.path.mkdir(parents=True)
        plan = TrackingPlan(spec=spec, attempt_dir=run_dir, resume_from=None)
        self._name = plan.run_id
        try:
            url = await asyncio.to_thread(_log_steps, plan)
        except Exception as error:  # any error of `wandb`, at which a run would fall back to files
            raise CheckFailed(
                f"W&B takes no run: {error}",
                f"let the key write to {self._entity}/{self._project} (`--entity`, `--project`)",
            ) from error
        return f"{NUM_STEPS} steps logged at {url}"

    async def _read(self) -> str:
        end, lines = time.monotonic() + READ_S, -1
        while time.monotonic() < end:
            run = await self._find()
            if run is not None:
                self._id, lines = str(run.get("id")), int(run.get("historyLineCount") or 0)
                if lines >= NUM_STEPS and run.get("state") == "finished":
                    return f"{lines} rows, state finished"
            await asyncio.sleep(1.0)
        state = "no run" if lines < 0 else f"{lines} rows"
        raise CheckFailed(f"{state} after {READ_S:g} s", "try again later: W&B is slow to ingest")

    async def _delete(self) -> str:
        await self._ask(DELETE, {"id": self._id})
        if await self._find() is not None:
            raise CheckFailed(
                "the run is still there", "delete it by hand; use a key that may delete runs"
            )
        return "the run deleted"

    async def _find(self) -> dict[str, Any] | None:
        named = {"project": self._project, "entity": self._entity, "name": self._name}
        project = (await self._ask(RUN, named)).get("project") or {}
        run = project.get("run")
        return run if isinstance(run, dict) else None

    async def _ask(self, query: str, variables: Mapping[str, object]) -> dict[str, Any]:
        async with httpx.AsyncClient(auth=("api", self._key), timeout=ANSWER_S) as http:
            body = {"query": query, "variables": dict(variables)}
            response = await http.post(f"{self._url.rstrip('/')}/graphql", json=body)
        if response.status_code in (401, 403):
            raise CheckFailed(f"{self._url} refuses the key", WRONG_KEY)
        status = f"{self._url} answers HTTP {response.status_code}"
        if response.is_server_error:
            raise CheckFailed(status, IN_TROUBLE)
        try:
            answer = response.json()
        except ValueError as error:
            raise CheckFailed(f"{status} without JSON", OTHER_SERVER) from error
        if not isinstance(answer, dict):
            raise CheckFailed(f"{status} without an object of JSON", OTHER_SERVER)
        errors = answer.get("errors")
        if not errors and not response.is_success:
            raise CheckFailed(status, OTHER_SERVER)
        if errors:
            raise CheckFailed(f"{status}: {str(errors)[:200]}", WRONG_KEY)
        return dict(answer.get("data") or {})


def _why_unreachable(error: BaseException) -> str:
    """Return in words why a request got no answer: what httpx says may be a bare errno."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "no such host is known"
        if isinstance(cause, ConnectionRefusedError):
            return "nothing listens there"
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _log_steps(plan: TrackingPlan) -> str | None:
    """Log the steps as a run does and return the run's address; raises any error of `wandb`."""
    tracker = open_online(plan)
    url = tracker.run.url
    for step in range(NUM_STEPS):
        tracker.log({METRIC: float(step)}, step=step, at=datetime.now(UTC))
    tracker.finish({}, succeeded=True)
    return url
