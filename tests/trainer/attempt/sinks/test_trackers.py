"""TensorBoard's files and MLflow's requests hold every figure; their faults harm nothing."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import EVENTS, TrackingStarted
from hillclimb.protocol.rundir import AttemptDir
from tests.fixtures.factories import ended, evaluated, make_spec, started, step
from tests.trainer.attempt.sinks.test_tracking import await_announcement
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.tracker_choice import add_trackers
from trainer.attempt.sinks.trackers import mlflow as mlflow_module
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.trackers.tensorboard import record

WAIT_S = 30.0


def tracked(
    root: Path,
    tracking: dict[str, Any],
    environ: Mapping[str, str] = {},
    *,
    is_refused: bool = False,
) -> bool:
    """Track an attempt of one evaluation and one step; True if the tracker has all."""
    attempt_dir = AttemptDir(root / "runs" / "run_1", 1)
    spec = make_spec(experimental=True, tracking=tracking)
    journal = EventJournal(JsonlFile(attempt_dir.events))
    plan = TrackingPlan(spec=spec, attempt_dir=attempt_dir, resume_from=None)
    add_trackers(journal, plan, DiskStore(root / "blobs"), environ)
    journal.emit(started(1, engine="torch"))
    if not is_refused:
        await_announcement(attempt_dir.events)
    for event in (
        evaluated(2, 0),
        step(3, 300, metrics={"reward/avg_raw_reward": 0.25, "reward/b/pass_at_1": 0.5}),
        ended(4, ReasonCode.COMPLETED),
    ):
        journal.emit(event)
    return journal.close(drain_s=WAIT_S)


def announced(root: Path) -> TrackingStarted:
    lines = (root / "runs" / "run_1" / "attempt-1" / "events.jsonl").read_bytes().splitlines()
    (event,) = [e for e in map(EVENTS.validate_json, lines) if isinstance(e, TrackingStarted)]
    return event


def records(data: bytes) -> Iterator[bytes]:
    """Yield the payloads of TFRecords; their own writer must give the same bytes."""
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        payload = data[12 : 12 + length]
        assert record(payload) == data[: 16 + length]
        yield payload
        data = data[16 + length :]


def test_a_record_has_the_checksums_of_the_format() -> None:
    """CRC-32C of nine digits is e3069283 (RFC 3720); masked as TFRecord masks it."""
    crc = 0xE3069283
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert record(b"123456789")[-4:] == struct.pack("<I", masked)


def test_a_tensorboard_file_holds_every_figure_and_is_stored(tmp_path: Path) -> None:
    assert tracked(tmp_path, {"tensorboard": True})
    name = "tensorboard/run_1-attempt-1/events.out.tfevents.*"
    (file,) = (tmp_path / "runs" / "run_1" / "attempt-1").glob(name)
    version, evaluation, training = records(file.read_bytes())
    assert version.endswith(b"\x1a\x0dbrain.Event:2")
    assert b"eval_sampled/booking/pass_at_1" in evaluation
    assert b"\x10\xac\x02" in training  # step 300 as a varint in field 2
    assert b"\x0a\x15reward/avg_raw_reward\x15" + struct.pack("<f", 0.25) in training
    (stored,) = (tmp_path / "blobs" / "runs" / "run_1" / "attempt-1" / "tracking").glob(name)
    assert stored.read_bytes() == file.read_bytes()
    assert (announced(tmp_path).tracker, announced(tmp_path).url) == ("tensorboard", None)


@dataclass(slots=True)
class MlflowServer:
    """A receiver as MLflow's REST documentation has it; it refuses what the limits forbid."""

    url: str = ""
    status: int = 200
    num_failing: int = 0
    """Requests that are answered by 503 first."""
    experiments: dict[str, str] = field(default_factory=dict)
    metrics: list[dict[str, Any]] = field(default_factory=list)
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    ended: str = ""
    authorization: str = ""

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.num_failing:
            self.num_failing -= 1
            return 503, {}
        if self.status != 200:
            return self.status, {"error_code": "PERMISSION_DENIED", "message": "no"}
        if path == "experiments/create":
            if body["name"] in self.experiments:
                return 400, {"error_code": "RESOURCE_ALREADY_EXISTS", "message": "there"}
            self.experiments[body["name"]] = "7"
            return 200, {"experiment_id": "7"}
        if path == "runs/create":
            assert body["experiment_id"] in self.experiments.values()
            self.tags |= {tag["key"]: tag["value"] for tag in body["tags"]}
            return 200, {"run": {"info": {"run_id": "r1"}}}
        self.take(path, body)
        return 200, {}

    def take(self, path: str, body: dict[str, Any]) -> None:
        """Take what concerns the run."""
        assert body.pop("run_id") == "r1"
        if path == "runs/log-batch":
            assert len(body.get("metrics", [])) <= 1000
            assert len(body.get("params", [])) <= 100
            for metric in body.get("metrics", []):
                assert set(metric) == {"key", "value", "timestamp", "step"}
                assert isinstance(metric["timestamp"], int)
            self.metrics += body.get("metrics", [])
            self.params |= {each["key"]: each["value"] for each in body.get("params", [])}
        elif path == "runs/set-tag":
            self.tags[body["key"]] = body["value"]
        else:
            assert path == "runs/update"
            self.ended = body["status"]


@contextmanager
def mlflow_server(**settings: Any) -> Iterator[MlflowServer]:
    state = MlflowServer(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path.startswith("/api/2.0/mlflow/experiments/get-by-name?")
            self.reply(200, {"experiment": {"experiment_id": "7"}})

        def do_POST(self) -> None:
            state.authorization = self.headers.get("Authorization", "")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.reply(*state.answer(self.path.removeprefix("/api/2.0/mlflow/"), body))

        def reply(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_module, "PAUSES_S", (0.01, 0.01))


@pytest.mark.parametrize("existing", [{}, {"climbs": "7"}])
def test_an_mlflow_run_holds_every_figure_under_its_step(
    tmp_path: Path, existing: dict[str, str]
) -> None:
    with mlflow_server(experiments=dict(existing), num_failing=1) as server:
        spec = {"mlflow": {"tracking_uri": server.url, "experiment": "climbs"}}
        theirs = {"MLFLOW_TRACKING_URI": f"{server.url}/", "MLFLOW_TRACKING_TOKEN": "secret-token"}
        assert tracked(tmp_path, spec, theirs)
    values = {(each["key"], each["step"]): each["value"] for each in server.metrics}
    assert values["reward/avg_raw_reward", 300] == 0.25
    assert values["eval_sampled/booking/pass_at_1", 0] == 0.5
    assert server.params["spec.name"] == "climb"
    assert server.tags["hillclimb.run"] == "run_1"
    assert server.tags["end_reason"] == "completed"
    assert (server.ended, server.authorization) == ("FINISHED", "Bearer secret-token")
    assert announced(tmp_path).url == f"{server.url}/#/experiments/7/runs/r1"


def test_credentials_go_to_no_address_but_their_own(tmp_path: Path) -> None:
    foreign = {"MLFLOW_TRACKING_URI": "https://mlflow.example.org"}
    foreign |= {"MLFLOW_TRACKING_TOKEN": "secret-token", "MLFLOW_TRACKING_USERNAME": "anna"}
    with mlflow_server() as server:
        assert tracked(tmp_path, {"mlflow": {"tracking_uri": server.url}}, foreign)
    assert (server.ended, server.authorization) == ("FINISHED", "")


@pytest.mark.parametrize("settings", [{"status": 403}, {"num_failing": 99}])
def test_an_mlflow_server_that_refuses_is_reported_and_harms_nothing(
    tmp_path: Path, settings: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with mlflow_server(**settings) as server:
        tracking = {"mlflow": {"tracking_uri": server.url}}
        assert not tracked(tmp_path, tracking, is_refused=True)
    assert caplog.text.count("tracking of this attempt stopped: MlflowRefused") == 1
