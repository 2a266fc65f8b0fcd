"""The real stack with the real trainer: each process is killed, then all of it is stopped.

The last test trains on a registered dataset; it is here because a stack takes long to start.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import AttemptDir, ExitRecord, PidRecord
from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.state.connection import connection
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by
from tests.conformance.service import TRAINER_PYTHON
from tests.e2e.stream import Follower

pytestmark = [pytest.mark.stack, pytest.mark.long]

DEADLINE_S = 120.0
STEPS = 24
WRITE_MODEL = """
import sys
from pathlib import Path
from tests.trainer.fixtures.tiny_model import write_tiny_model
write_tiny_model(Path(sys.argv[1]))
"""

WRITE_TASKS = """
import json, sys
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.minifleet.export import tasks_document
tasks = minifleet_tasks(("booking",), "train", 40, seed=3)
json.dump(tasks_document(tasks), open(sys.argv[1], "w"))
"""


@dataclass(slots=True)
class Stack:
    """The embedded stack, and the run under attack."""

    options: StackOptions
    url: str
    http: httpx.Client
    key: str
    run_id: str = ""
    log: list[str] = field(default_factory=list)

    def submit(self, model: Path, **sections: dict[str, Any]) -> None:
        answer = self.http.post("/v1/runs", json=short_spec(model) | sections)
        assert answer.is_success, answer.text
        self.run_id = answer.json()["id"]

    def run(self) -> dict[str, Any]:
        """The run; waits for an API that is away."""
        found: list[dict[str, Any]] = []

        def answered() -> bool:
            try:
                answer = self.http.get(f"/v1/runs/{self.run_id}")
            except httpx.HTTPError:
                return False
            found.append(answer.json())
            return answer.is_success

        assert wait_until(answered, deadline_s=DEADLINE_S)
        return found[-1]

    def until(self, condition: Callable[[], bool]) -> None:
        if not wait_until(condition, deadline_s=DEADLINE_S):
            logs = self.options.state_dir / "logs"
            tails = [f"== {p.name}\n{p.read_text()[-1500:]}" for p in sorted(logs.glob("*.log"))]
            raise AssertionError(f"{self.run()}\n" + "\n".join(tails))

    def until_step(self, step: int) -> None:
        self.until(lambda: int(self.run()["progress"]["step"]) >= step)

    def kill(self, name: str) -> None:
        """SIGKILL one service, and wait until the supervisor has it ready again.

        The trainer works on without it for a while, then is halted until the service is back:
        a fast machine would else finish the run meanwhile.
        """
        old, trainer, num_events = self._pid(name), self.trainer(1), self.num_written(1)
        os.kill(old, signal.SIGKILL)
        self.until(lambda: self.num_written(1) > num_events + 1)
        trainer.suspend()
        self.until(lambda: self._is_ready(name) and self._pid(name) != old)
        trainer.resume()

    def num_written(self, attempt: int) -> int:
        return self.where(attempt).events.read_bytes().count(b"\n")

    def where(self, attempt: int) -> AttemptDir:
        return AttemptDir(self.options.state_dir / "runs" / self.run_id, attempt)

    def trainer(self, attempt: int) -> psutil.Process:
        record = PidRecord.model_validate_json(self.where(attempt).pid.read_bytes())
        return psutil.Process(record.pid)

    def events(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            path = f"/v1/runs/{self.run_id}/events?after={after}&limit=1000"
            page = self.http.get(path).raise_for_status().json()["data"]
            if not page:
                return found
            found += page

    def _pid(self, name: str) -> int:
        process = status(self.options.state_dir).services[name].process
        return process.pid if process is not None else -1

    def _is_ready(self, name: str) -> bool:
        return status(self.options.state_dir).services[name].state == "ready"


def short_spec(model: Path) -> dict[str, Any]:
    return {
        "name": "kill matrix",
        "model": {"source": str(model)},
        "engine": {"type": "torch"},
        "placement": {"type": "inline"},
        "data": {"env_keys": ["booking"], "train_tasks_per_env": 30, "eval_tasks_per_env": 4},
        "environment": {"max_turns": 2},
        "rollout": {
            "n_samples_per_prompt": 4,
            "max_input_length": 1700,
            "max_generate_length": 16,
            "max_sequence_length": 1800,
        },
        "schedule": {"total_steps": STEPS, "train_batch_size": 4, "mini_batch_size": 4},
        "eval": {"interval": 0},
        "checkpoints": {"interval": 2},
    }


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (CODE_ROOT / ".venv-trainer/bin/python").exists():
        pytest.fail("the data plane's environment is missing: `make setup` makes it")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    subprocess.run([str(TRAINER_PYTHON), "-c", WRITE_MODEL, str(folder)], cwd=CODE_ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("stack").resolve()
    options = StackOptions(state_dir=folder / "state", api_port=0, trainer_python=TRAINER_PYTHON)
    lines: list[str] = []
    threads = pytest.MonkeyPatch()
    threads.setenv("OMP_NUM_THREADS", "1")  # two spinning threads are slower beside other work
    try:
        up_detached(options, say=lines.append)
        found = connection(options.state_dir)
        assert found is not None
        headers = {"Authorization": f"Bearer {found.api_key}"}
        with httpx.Client(base_url=found.url, headers=headers, trust_env=False) as http:
            yield Stack(options, found.url, http, found.api_key, log=lines)
    finally:
        threads.undo()
        down(options.state_dir, say=lines.append)
    assert list(owned_by(options.state_dir)) == []


def test_run_survives_the_death_of_worker_api_runner_and_trainer(stack: Stack, model: Path) -> None:
    stack.submit(model)
    follower = Follower(stack.url, stack.key, stack.run_id)
    follower.start()
    stack.until_step(2)
    for name in ("worker", "api", "runner"):
        first = int(stack.run()["progress"]["step"])
        stack.kill(name)
        stack.until_step(min(first + 1, STEPS))
    assert stack.run()["attempt"] == 1, "the restarted runner adopted its trainer"

    victim = stack.trainer(1)
    token = victim.environ()["HILLCLIMB_ATTEMPT_TOKEN"]
    victim.kill()
    stack.until(lambda: stack.run()["attempt"] == 2)
    lines = stack.where(1).events.read_bytes().splitlines()
    zombie = stack.http.post(
        "/v1/ingest",
        content=b'{"events":[' + lines[-1] + b"]}",
        headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    assert (zombie.status_code, zombie.json()["code"]) == (409, "attempt_superseded")

    stack.until(follower.ended)
    run = stack.run()
    assert (run["status"], run["attempt"], run["progress"]["step"]) == ("succeeded", 2, STEPS)
    follower.close()
    check_history(stack, follower)


def test_stopped_stack_checkpoints_its_trainer_and_goes_on_when_it_is_up_again(
    stack: Stack, model: Path
) -> None:
    stack.submit(model)
    stack.until_step(3)
    assert down(stack.options.state_dir, say=stack.log.append)
    assert list(owned_by(stack.options.state_dir)) == []
    left = ExitRecord.model_validate_json(stack.where(1).exit.read_bytes())
    assert left.reason == ReasonCode.RUNNER_STOPPED

    up_detached(stack.options, say=stack.log.append)
    stack.until(lambda: stack.run()["attempt"] == 2)
    stack.until_step(left.step + 1)
    started = [e["data"] for e in stack.events() if e["type"] == "trainer.started"]
    assert [data["resumed_from_step"] for data in started] == [None, left.step]
    assert stack.http.post(f"/v1/runs/{stack.run_id}/cancel").is_success
    stack.until(lambda: stack.run()["status"] == "cancelled")


def test_a_run_trains_on_a_dataset_that_was_registered(
    stack: Stack, model: Path, tmp_path: Path
) -> None:
    file = tmp_path / "tasks.json"
    subprocess.run([str(TRAINER_PYTHON), "-c", WRITE_TASKS, str(file)], cwd=CODE_ROOT, check=True)
    answer = stack.http.post(
        "/v1/datasets/mine/versions",
        params={"options": json.dumps({"split": {"policy": "rank", "eval_ratio": 0.2}})},
        content=file.read_bytes(),
        timeout=DEADLINE_S,
    )
    assert answer.status_code == 201, answer.text
    version = answer.json()
    assert (version["num_train"], version["num_eval"]) == (32, 8)
    schedule = {"total_steps": 2, "train_batch_size": 4, "mini_batch_size": 4}
    stack.submit(model, data={"dataset": "mine@1"}, schedule=schedule)
    stack.until(lambda: stack.run()["status"] in ("succeeded", "failed"))
    run = stack.run()
    assert run["status"] == "succeeded", run["end_reason"]
    assert run["spec"]["data"]["dataset"]["digest"] == version["digest"]
    (started,) = [e["data"] for e in stack.events() if e["type"] == "trainer.started"]
    assert (started["num_train_tasks"], started["num_eval_tasks"]) == (32, 8)
    page = stack.http.get("/v1/datasets/mine/versions/1/tasks", params={"limit": 200}).json()
    place = {row["key"]: row["split"] for row in page["data"]}
    played = stack.http.get(f"/v1/runs/{run['id']}/trajectories", params={"limit": 200}).json()
    assert {(each["split"], place[each["task_key"]]) for each in played["data"]} == {
        ("train", "train"),
        ("eval", "eval"),
    }


def check_history(stack: Stack, follower: Follower) -> None:
    """The stream is the table; both are what the trainers wrote, once; step 1 to the last."""
    events = stack.events()
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert follower.seen == [(event["seq"], event["type"]) for event in events]
    assert follower.num_connections >= 2, "the API's death cut the stream"
    for attempt in (1, 2):
        sent = [e for e in events if e["attempt"] == attempt and e["actor"] == "trainer"]
        assert len([e for e in sent if e["type"] != "attempt.rewound"]) == (
            stack.num_written(attempt)
        )
    [first, second] = [event["data"] for event in events if event["type"] == "trainer.started"]
    saved = [e["data"]["path"] for e in events if e["type"] == "checkpoint.saved"]
    assert first["resumed_from_step"] is None
    assert f"checkpoints/global_step_{second['resumed_from_step']}/attempt-1" in saved
    steps = {e["data"]["step"] for e in events if e["type"] == "step.completed"}
    assert steps == set(range(1, STEPS + 1))
