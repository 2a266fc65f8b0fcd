"""A run and its attempts on MLflow's own server: everything arrives, and nothing is there twice.

`make e2e` installs the server and runs this in the data plane's environment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the data plane's environment runs this: `make e2e`")

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.events import EVENTS, EvalCompleted, Event, StepCompleted
from hillclimb.protocol.rundir import AttemptDir
from hillclimb.spec.run import RunSpec
from tests.e2e.mlflow.server import PYTHON, ROOT, MlflowStore, mlflow_server, pairs
from tests.trainer.jobs.test_process import a_spec
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.tracker_choice import add_trackers
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.jobs.train.checkpoints import find_latest

pytestmark = pytest.mark.skipif(
    not PYTHON.exists(), reason="no .venv-mlflow: `make e2e` installs it"
)
WAIT_S = 600.0
EXPERIMENT = "agents/climb"
STEPS = 4
Values = dict[str, list[tuple[int, float]]]


@pytest.fixture
def mlflow(tmp_path: Path) -> Iterator[MlflowStore]:
    with mlflow_server(tmp_path / "mlflow") as store:
        yield store


def write_spec(root: Path, url: str) -> Path:
    tracking = {"mlflow": {"tracking_uri": url, "experiment": EXPERIMENT}}
    spec = a_spec(root, schedule={"total_steps": STEPS}, tracking=tracking)
    path = root / "spec.json"
    path.write_text(json.dumps(spec))
    return path


def start(root: Path, attempt: int, *more: str) -> subprocess.Popen[bytes]:
    where = AttemptDir(root / "runs" / "run_1", attempt)
    command = [sys.executable, "-m", "trainer", "run", "--spec", str(root / "spec.json")]
    options = ["--run-dir", str(where.run_dir), "--attempt", str(attempt), *more]
    where.path.mkdir(parents=True)
    with where.log.open("wb") as log:
        return subprocess.Popen(
            [*command, *options], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )


def events(where: AttemptDir) -> list[Event]:
    return [EVENTS.validate_json(line) for line in where.events.read_bytes().splitlines()]


def sent(where: AttemptDir) -> Values:
    """The values that the events of an attempt stand for."""
    values: Values = defaultdict(list)
    for event in events(where):
        if isinstance(event, StepCompleted):
            for name, value in event.metrics.items():
                values[name].append((event.step, value))
        elif isinstance(event, EvalCompleted):
            prefix = f"eval_{event.decoding}/"
            for name, value in event.metrics.items():
                values[prefix + name.removeprefix("eval/")].append((event.step, value))
            values[f"{prefix}duration_s"].append((event.step, event.duration_s))
    return {name: sorted(pairs) for name, pairs in values.items()}


def kill_after_a_checkpoint(root: Path) -> None:
    """Begin the first attempt and kill it, without an end, once its last step is on the server."""
    process = start(root, 1)
    deadline = time.monotonic() + WAIT_S
    store = DiskStore(root / "blobs")
    while not find_latest(store, "run_1"):
        assert process.poll() is None, (root / "runs/run_1/attempt-1/trainer.log").read_text()
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_a_killed_and_a_resumed_attempt_arrive_whole_and_once(
    tmp_path: Path, mlflow: MlflowStore
) -> None:
    spec = write_spec(tmp_path, mlflow.url)
    kill_after_a_checkpoint(tmp_path)
    (killed,) = mlflow.runs(EXPERIMENT)
    assert killed["info"]["status"] == "RUNNING"

    second = start(tmp_path, 2, "--resume-from", "latest")
    assert second.wait(WAIT_S) == 0, (tmp_path / "runs/run_1/attempt-2/trainer.log").read_text()
    first_dir, second_dir = (AttemptDir(tmp_path / "runs/run_1", each) for each in (1, 2))
    killed, resumed = mlflow.runs(EXPERIMENT)
    ends = [each["info"]["status"] for each in (killed, resumed)]
    assert ends == ["KILLED", "FINISHED"]
    for number, run in enumerate((killed, resumed), start=1):
        assert run["info"]["run_name"] == f"run_1-attempt-{number}"
        assert int(run["info"]["end_time"]) >= int(run["info"]["start_time"])
        params, tags = pairs(run, "params"), pairs(run, "tags")
        assert params["spec.schedule.total_steps"] == str(STEPS)
        assert params["hillclimb.attempt"] == tags["hillclimb.attempt"] == str(number)
        assert tags["trainer.engine"] == "torch"
    assert pairs(resumed, "tags")["end_reason"] == "completed"
    assert pairs(resumed, "params")["hillclimb.previous_attempt"] == "run_1-attempt-1"

    # Everything of the attempt that ended, and of the killed one what it had sent: once.
    assert mlflow.histories(resumed) == sent(second_dir)
    of_first, arrived = sent(first_dir), mlflow.histories(killed)
    assert arrived
    for name, values in arrived.items():
        assert len(set(values)) == len(values)
        assert set(values) <= set(of_first[name])

    # The process of an attempt that restarts reads its events from the first.
    plan = TrackingPlan(
        spec=RunSpec.model_validate_json(spec.read_bytes()),
        attempt_dir=second_dir,
        resume_from=pairs(resumed, "params")["hillclimb.resume_from"],
    )
    journal = EventJournal(JsonlFile(second_dir.events))
    add_trackers(journal, plan, DiskStore(tmp_path / "blobs"), {})
    assert journal.close(drain_s=WAIT_S)
    again = mlflow.runs(EXPERIMENT)
    assert [each["info"]["run_id"] for each in again] == [
        each["info"]["run_id"] for each in (killed, resumed)
    ]
    assert [each["info"]["status"] for each in again] == ends
    assert mlflow.histories(again[1]) == mlflow.histories(resumed)
