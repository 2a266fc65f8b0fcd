"""The runner's wire, spoken by a scripted service: claims, heartbeats, ends, ingest."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from hillclimb.protocol.launch import RUNNER_IDENTITY, LaunchPlan, RunnerCommand
from hillclimb.spec.data import DataSpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.checkpoints import CheckpointSpec
from hillclimb.spec.training.schedule import ScheduleSpec

TOKEN = "runner-token"


def plan(
    url: str,
    attempt: int = 1,
    *,
    steps: int = 3,
    resume_from: str | None = None,
    secrets: Mapping[str, str] | None = None,
) -> LaunchPlan:
    return LaunchPlan(
        run_id="run_0123456789",
        attempt=attempt,
        attempt_id=f"att_{attempt}",
        attempt_token="attempt-token",
        ingest_url=f"{url}/v1/ingest",
        spec=RunSpec(
            name="runner test",
            data=DataSpec(env_keys=("booking",)),
            schedule=ScheduleSpec(total_steps=steps, train_batch_size=1, mini_batch_size=1),
            checkpoints=CheckpointSpec(interval=1),
        ),
        resume_from=resume_from,
        secrets=dict(secrets or {}),
    )


class ScriptedService:
    """Hands out `plans`, repeats `commands`, remembers what it was told."""

    def __init__(self) -> None:
        self.plans: list[LaunchPlan] = []
        self.commands: list[RunnerCommand] = []
        self.registrations: list[dict[str, Any]] = []
        self.identities: list[str] = []
        self.heartbeats: list[dict[str, Any]] = []
        self.ends: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.forget_runner = False
        self.deleted: set[str] = set()
        """Runs that were deleted."""
        self.folders: list[list[str]] = []
        """Runs of which the runner said that it has a folder, at each request."""
        self.crowd_interval_s: float | None = None
        """Between heartbeats, where the project has many runners."""
        self.num_claims = 0
        self.novelties: dict[str, Any] = {}
        """Keys of a newer version, in the spec of every plan."""
        self._server: ThreadingHTTPServer | None = None
        self.port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"{}")
                if self.path == "/v1/runners":
                    service.identities.append(self.headers.get(RUNNER_IDENTITY, ""))
                if not self.path.startswith("/v1/ingest") and not self._token_fits():
                    return self._answer(401, {"code": "invalid_key", "detail": "wrong token"})
                return self._answer(*service.answer(self.path, body))

            def _token_fits(self) -> bool:
                return self.headers.get("Authorization") == f"Bearer {TOKEN}"

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode() if status != 204 else b""
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                return

        ThreadingHTTPServer.daemon_threads = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if path == "/v1/runners":
            self.registrations.append(body)
            self.forget_runner = False
            return 200, {"runner_id": "rnr_1", "heartbeat_interval_s": 0.2, "lease_s": 10.0}
        if path == "/v1/ingest":
            self.events += body["events"]
            return 200, {"accepted": len(body["events"]), "last_trainer_seq": 0}
        if self.forget_runner:
            return 404, {"code": "runner_not_found", "detail": "no such runner"}
        if path.endswith("/heartbeat"):
            self.heartbeats.append(body)
            until = (datetime.now(UTC) + timedelta(seconds=10)).isoformat()
            commands = [c.model_dump() for c in self.commands if c.attempt_id not in self.ends]
            crowd = {"heartbeat_interval_s": self.crowd_interval_s, "has_work": bool(self.plans)}
            more = crowd if self.crowd_interval_s is not None else {}
            return 200, {"commands": commands, "lease_until": until, **more}
        if path.endswith("/deleted-runs"):
            self.folders.append(body["run_ids"])
            return 200, {"run_ids": [each for each in body["run_ids"] if each in self.deleted]}
        if path.endswith("/claim"):
            self.num_claims += 1
            if not self.plans:
                return 204, {}
            sent = json.loads(self.plans.pop(0).model_dump_json())
            return 200, {**sent, "spec": {**sent["spec"], **self.novelties}}
        assert path.endswith("/end"), path
        self.ends[path.split("/")[-2]] = body
        return 200, {}
