"""TensorBoard's files and MLflow's requests hold every figure; their faults harm nothing."""

from __future__ import annotations

import json
import re
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


def a_plan(root: Path, tracking: dict[str, Any], *, attempt: int = 1) -> TrackingPlan:
    return TrackingPlan(
        spec=make_spec(experimental=True, tracking=tracking),
        attempt_dir=AttemptDir(root / "runs" / "run_1", attempt),
        resume_from=None,
    )


def tracked(
    root: Path,
    tracking: dict[str, Any],
    environ: Mapping[str, str] = {},
    *,
    is_refused: bool = False,
    attempt: int = 1,
    reason: ReasonCode = ReasonCode.COMPLETED,
) -> bool:
    """Track an attempt of one evaluation and one step; True if the tracker has all."""
    plan = a_plan(root, tracking, attempt=attempt)
    events = plan.attempt_dir.events
    journal = EventJournal(JsonlFile(events))
    add_trackers(journal, plan, DiskStore(root / "blobs"), environ)
    journal.emit(started(1, engine="torch"))
    if not is_refused:
        await_announcement(events)
    for event in (
        evaluated(2, 0),
        step(3, 300, metrics={"reward/avg_raw_reward": 0.25, "reward/b/pass_at_1": 0.5}),
        ended(4, reason),
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
class MlflowsRun:
    """What the receiver has of one run."""

    status: str = "RUNNING"
    metrics: dict[tuple[str, int, int], float] = field(default_factory=dict)
    """By name, step and time."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)

    def matches(self, wanted: str) -> bool:
        """True if the run is what a filter of `runs/search` selects."""
        tags = dict(re.findall(r"tags\.`([^`]+)` = '([^']*)'", wanted))
        status = re.search(r"attributes\.status = '([A-Z]+)'", wanted)
        is_wanted = status is None or status[1] == self.status
        return is_wanted and tags.items() <= self.tags.items()

    def value(self, name: str, step: int) -> float:
        """The one value of a metric at a step."""
        (value,) = [v for (key, at, _), v in self.metrics.items() if (key, at) == (name, step)]
        return value


@dataclass(slots=True)
class MlflowServer:
    """A receiver as MLflow's REST documentation has it; it refuses what the limits forbid.

    `tests/e2e/mlflow` has the server itself; this one has the faults.
    """

    url: str = ""
    status: int = 200
    num_failing: int = 0
    """Requests that are answered by 503 first."""
    loses_creation: bool = False
    """The first run is created, and the request for it is answered by 503."""
    experiments: dict[str, str] = field(default_factory=dict)
    runs: dict[str, MlflowsRun] = field(default_factory=dict)
    authorization: str = ""

    @property
    def run(self) -> MlflowsRun:
        """The only run."""
        (run,) = self.runs.values()
        return run

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
        if path == "runs/search":
            found = [each for each in self.runs if self.runs[each].matches(body["filter"])]
            return 200, {"runs": [{"info": {"run_id": each}} for each in found]} if found else {}
        if path == "runs/create":
            return self.create(body)
        self.take(path, body)
        return 200, {}

    def create(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        assert body["experiment_id"] in self.experiments.values()
        run_id = f"r{len(self.runs) + 1}"
        self.runs[run_id] = MlflowsRun(tags={tag["key"]: tag["value"] for tag in body["tags"]})
        if self.loses_creation:
            self.loses_creation = False
            return 503, {}
        return 200, {"run": {"info": {"run_id": run_id}}}

    def take(self, path: str, body: dict[str, Any]) -> None:
        """Take what concerns a run."""
        run = self.runs[body.pop("run_id")]
        if path == "runs/log-batch":
            assert len(body.get("metrics", [])) <= 1000
            assert len(body.get("params", [])) <= 100
            assert len(body.get("tags", [])) <= 100
            for metric in body.get("metrics", []):
                assert set(metric) == {"key", "value", "timestamp", "step"}
                assert isinstance(metric["timestamp"], int)
                place = (metric["key"], metric["step"], metric["timestamp"])
                run.metrics[place] = metric["value"]
            run.params |= {each["key"]: each["value"] for each in body.get("params", [])}
            run.tags |= {each["key"]: each["value"] for each in body.get("tags", [])}
        else:
            assert path == "runs/update"
            run.status = body["status"]


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
    run = server.run
    assert run.value("reward/avg_raw_reward", 300) == 0.25
    assert run.value("eval_sampled/booking/pass_at_1", 0) == 0.5
    assert run.params["spec.name"] == "climb"
    assert run.tags["hillclimb.run"] == "run_1"
    assert run.tags["end_reason"] == "completed"
    assert (run.status, server.authorization) == ("FINISHED", "Bearer secret-token")
    assert announced(tmp_path).url == f"{server.url}/#/experiments/7/runs/r1"


def test_a_process_that_restarts_continues_the_run_and_doubles_nothing(tmp_path: Path) -> None:
    with mlflow_server(loses_creation=True) as server:
        tracking = {"mlflow": {"tracking_uri": server.url}}
        assert tracked(tmp_path, tracking)
        whole = dict(server.run.metrics)
        again = EventJournal(JsonlFile(tmp_path / "runs/run_1/attempt-1/events.jsonl"))
        add_trackers(again, a_plan(tmp_path, tracking), DiskStore(tmp_path / "blobs"), {})
        assert again.close(drain_s=WAIT_S)
    assert server.run.metrics == whole
    assert server.run.status == "FINISHED"


def test_the_next_attempt_ends_the_run_of_one_that_was_killed(tmp_path: Path) -> None:
    with mlflow_server(experiments={"hillclimb": "7"}) as server:
        killed = {"hillclimb.run": "run_1", "hillclimb.attempt": "1"}
        other = {"hillclimb.run": "run_2", "hillclimb.attempt": "1"}
        server.runs = {"r1": MlflowsRun(tags=killed), "r2": MlflowsRun(tags=other)}
        assert tracked(tmp_path, {"mlflow": {"tracking_uri": server.url}}, attempt=2)
    ends = [each.status for each in server.runs.values()]
    assert ends == ["KILLED", "RUNNING", "FINISHED"]


@pytest.mark.parametrize(
    ("reason", "status"),
    [(ReasonCode.PAUSED_BY_USER, "KILLED"), (ReasonCode.ENGINE_FAILED, "FAILED")],
)
def test_an_attempt_that_was_stopped_did_not_fail(
    tmp_path: Path, reason: ReasonCode, status: str
) -> None:
    with mlflow_server() as server:
        assert tracked(tmp_path, {"mlflow": {"tracking_uri": server.url}}, reason=reason)
    assert server.run.status == status


def test_a_server_that_the_operator_does_not_open_gets_no_request(tmp_path: Path) -> None:
    closed = {"HILLCLIMB_RUN_PRIVATE_HOSTS": "none"}
    with mlflow_server() as server:
        section = {"mlflow": {"tracking_uri": server.url}}
        assert not tracked(tmp_path, section, closed, is_refused=True)
        assert server.runs == {}
        named = closed | {"MLFLOW_TRACKING_URI": server.url}
        assert tracked(tmp_path / "named", section, named)
    assert server.run.status == "FINISHED"


def test_credentials_go_to_no_address_but_their_own(tmp_path: Path) -> None:
    foreign = {"MLFLOW_TRACKING_URI": "https://mlflow.example.org"}
    foreign |= {"MLFLOW_TRACKING_TOKEN": "secret-token", "MLFLOW_TRACKING_USERNAME": "anna"}
    with mlflow_server() as server:
        assert tracked(tmp_path, {"mlflow": {"tracking_uri": server.url}}, foreign)
    assert (server.run.status, server.authorization) == ("FINISHED", "")


@pytest.mark.parametrize(
    ("settings", "error"), [({"status": 403}, "MlflowRefused"), ({"num_failing": 99}, "MlflowAway")]
)
def test_an_mlflow_server_that_refuses_is_reported_and_harms_nothing(
    tmp_path: Path, settings: dict[str, Any], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    with mlflow_server(**settings) as server:
        tracking = {"mlflow": {"tracking_uri": server.url}}
        assert not tracked(tmp_path, tracking, is_refused=True)
    assert caplog.text.count(f"tracking of this attempt stopped: {error}") == 1
