"""What W&B gets is what the events say; what happens to W&B is nothing to the run."""

import logging
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import wandb

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import (
    EVENTS,
    EvalCompleted,
    RunWarning,
    StepCompleted,
    TrackingStarted,
)
from hillclimb.protocol.rundir import AttemptDir
from tests.fixtures.factories import ended, evaluated, make_spec, started, step
from tests.trainer.attempt.sinks.wandb_file import WandbRecord, read_wandb
from tests.trainer.fixtures.short_run import ShortRun
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.tracker_choice import add_trackers
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.tracking import TrackedRun, Tracker, Tracking
from trainer.errors import SpecError

WAIT_S = 60.0


def a_plan(root: Path, *, attempt: int = 1, name: str = "climb", **wandb: Any) -> TrackingPlan:
    return TrackingPlan(
        spec=make_spec(
            name=name, experimental=True, tracking={"wandb": {"mode": "offline", **wandb}}
        ),
        attempt_dir=AttemptDir(root / "runs" / "run_1", attempt),
        resume_from="runs/run_1/checkpoints/global_step_2/attempt-1" if attempt > 1 else None,
    )


def await_announcement(events: Path) -> None:
    """Wait until the tracker has said where its run is: it may not after the last event."""
    deadline = time.monotonic() + WAIT_S
    while b'"tracking.started"' not in events.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def tracked(plan: TrackingPlan, environ: Mapping[str, str] = {}) -> WandbRecord:
    """What W&B has of an attempt of one step and one evaluation."""
    file = JsonlFile(plan.attempt_dir.events)
    journal = EventJournal(file)
    add_trackers(journal, plan, DiskStore(plan.attempt_dir.run_dir / "blobs"), environ)
    journal.emit(started(1, engine="torch"))
    await_announcement(plan.attempt_dir.events)
    for event in (
        evaluated(2, 0),
        step(3, 1, metrics={"reward/avg_raw_reward": 0.25}),
        ended(4, ReasonCode.COMPLETED),
    ):
        journal.emit(event)
    assert journal.close(drain_s=WAIT_S)
    return read_wandb(plan.attempt_dir.path)


def test_an_offline_run_file_holds_every_figure_under_its_name_and_step(tmp_path: Path) -> None:
    record = tracked(a_plan(tmp_path, project="p", entity="team", tags=["a", "b"]))
    assert [row["_step"] for row in record.history] == [0, 1]
    assert record.history[0]["eval_sampled/booking/pass_at_1"] == 0.5
    assert record.history[0]["eval_sampled/duration_s"] == 3.0
    assert record.history[1]["reward/avg_raw_reward"] == 0.25
    assert record.history[1]["trainer/global_step"] == 1
    assert record.summary["end_reason"] == "completed"
    assert record.exit_code == 0
    assert (record.run.project, record.run.entity) == ("p", "team")
    assert list(record.run.tags) == ["a", "b"]
    assert record.config["spec"]["name"] == "climb"
    assert record.config["trainer"]["engine"] == "torch"
    blobs = tmp_path / "runs" / "run_1" / "blobs"
    (stored,) = blobs.glob("runs/run_1/attempt-1/tracking/wandb/offline-run-*/*.wandb")
    (local,) = tmp_path.glob("runs/run_1/attempt-1/wandb/offline-run-*/*.wandb")
    assert stored.read_bytes() == local.read_bytes()
    lines = a_plan(tmp_path).attempt_dir.events.read_bytes().splitlines()
    second = EVENTS.validate_json(lines[1])
    assert isinstance(second, TrackingStarted)
    announced = second
    assert (announced.tracker, announced.name) == ("wandb", "run_1-attempt-1")
    assert announced.url is None


def test_attempts_are_runs_of_their_own_linked_by_group_and_config(tmp_path: Path) -> None:
    second = tracked(a_plan(tmp_path, attempt=2))
    assert (second.run.run_id, second.run.run_group) == ("run_1-attempt-2", "run_1")
    assert second.config["hillclimb"] == {
        "run_id": "run_1",
        "attempt": 2,
        "previous_attempt": "run_1-attempt-1",
        "resume_from": "runs/run_1/checkpoints/global_step_2/attempt-1",
    }
    assert a_plan(tmp_path, group="sweep").group == "sweep"
    assert a_plan(tmp_path).config()["hillclimb"]["previous_attempt"] is None  # type: ignore[index]


def test_nothing_is_tracked_unless_asked_and_online_needs_a_key(tmp_path: Path) -> None:
    journal = EventJournal(JsonlFile(tmp_path / "events.jsonl"))
    store = DiskStore(tmp_path)
    add_trackers(journal, a_plan(tmp_path, mode="disabled"), store, {})
    assert journal.close(drain_s=0.0)
    assert not (tmp_path / "runs").exists()
    with pytest.raises(SpecError, match="WANDB_API_KEY is not set"):
        add_trackers(journal, a_plan(tmp_path, mode="online"), store, {})


def test_a_server_that_refuses_leaves_the_figures_in_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("WANDB_BASE_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    wandb.teardown()  # it reads the environment once
    with caplog.at_level(logging.WARNING, logger="trainer"):
        record = tracked(a_plan(tmp_path, mode="online"), {"WANDB_API_KEY": "k" * 40})
    assert record.history[1]["reward/avg_raw_reward"] == 0.25
    assert caplog.text.count("stored for `wandb sync`") == 1
    wandb.teardown()
    server.shutdown()
    server.server_close()


class Broken:
    """Takes the first value and fails at the second."""

    run = TrackedRun("wandb", "run_1-attempt-1")

    def __init__(self) -> None:
        self.num_logged = 0

    def describe(self, facts: Mapping[str, object]) -> None:
        pass

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        self.num_logged += 1
        if self.num_logged > 1:
            raise ConnectionError("gone")

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        raise AssertionError("it was given up")


def test_a_tracker_that_fails_is_reported_once_and_asked_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tracker = Broken()
    path = tmp_path / "events.jsonl"
    journal = EventJournal(JsonlFile(path), [Tracking(path, lambda: tracker)])
    with caplog.at_level(logging.WARNING, logger="trainer"):
        for number in range(1, 6):
            journal.emit(StepCompleted(step=number, metrics={"x": 1.0}, outcomes=()))
        assert not journal.close(drain_s=WAIT_S)
    assert tracker.num_logged == 2
    assert caplog.text.count("ConnectionError: gone") == 1
    assert journal.last_seq == 5


def test_a_tracker_that_hangs_does_not_hold_the_end_of_the_run(tmp_path: Path) -> None:
    release = threading.Event()

    def hangs() -> Tracker:
        release.wait()
        raise TimeoutError

    path = tmp_path / "events.jsonl"
    journal = EventJournal(JsonlFile(path), [Tracking(path, hangs)])
    journal.emit(RunWarning(step=0, code="test", message="m"))
    assert not journal.close(drain_s=0.01)
    release.set()


async def test_every_metric_of_a_real_run_is_in_its_wandb_file(tmp_path: Path) -> None:
    run = ShortRun(tmp_path, schedule={"total_steps": 2}, tracking={"wandb": {"mode": "offline"}})
    trainer = run.build()
    plan = TrackingPlan(spec=run.spec, attempt_dir=run.dir(), resume_from=None)
    add_trackers(run.journal, plan, DiskStore(tmp_path / "blobs"), {})
    try:
        await trainer.train()
    finally:
        await trainer.close()
        assert run.journal.close(drain_s=WAIT_S)
    history = {row["_step"]: row for row in read_wandb(run.dir().path).history}
    for event in run.events(StepCompleted):
        row = history[event.step]
        assert {name: row[name] for name in event.metrics} == event.metrics
    for evaluation in run.events(EvalCompleted):
        row = history[evaluation.step]
        for name, value in evaluation.metrics.items():
            own = name.replace("eval/", f"eval_{evaluation.decoding}/", 1)
            assert row[own] == value
