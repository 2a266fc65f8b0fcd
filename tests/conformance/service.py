"""The service as `hillclimb up` starts it, and what a user sees of a run through the API."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil

from hillclimb.stack.control import down, status, up_detached
from hillclimb.stack.options import CODE_ROOT, StackOptions
from hillclimb.stack.state.connection import connection
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import owned_by

TRAINER_PYTHON = CODE_ROOT / "tests/conformance/trainer_python.sh"
"""Of the data plane, with the trainer of this checkout."""
PATIENCE_S = 600.0
"""Two cores, and others at work on them."""
WRITE_MODEL = """
import sys
from pathlib import Path
from tests.trainer.fixtures.tiny_model import write_tiny_model
write_tiny_model(Path(sys.argv[1]))
"""
SHARED_MEMORY = Path("/dev/shm")
ENDED = ("succeeded", "failed", "cancelled")


@dataclass(slots=True)
class Service:
    """The embedded stack: API, PostgreSQL, Valkey, workers, clock, runner."""

    options: StackOptions
    http: httpx.Client
    model: str
    """As `model.source` of a spec."""
    patience_s: float = PATIENCE_S
    """How long anything is waited for (seconds)."""
    trainers: set[int] = field(default_factory=set)
    """Pids of all trainers that were met."""

    def pid(self, name: str) -> int:
        """The process of one of the services."""
        process = status(self.options.state_dir).services[name].process
        assert process is not None, name
        return process.pid

    def supervisor(self) -> int:
        found = status(self.options.state_dir).supervisor
        assert found is not None
        return found.pid

    def is_ready(self, name: str) -> bool:
        return status(self.options.state_dir).services[name].state == "ready"

    # What follows is what a user does.

    def submit(self, spec: Mapping[str, Any]) -> str:
        answer = self.http.post("/v1/runs", json=dict(spec))
        assert answer.status_code == 201, answer.text
        found: str = answer.json()["id"]
        return found

    def ask(self, run_id: str, what: str) -> httpx.Response:
        """`cancel`, `pause` or `resume` a run."""
        return self.http.post(f"/v1/runs/{run_id}/{what}").raise_for_status()

    def run(self, run_id: str) -> dict[str, Any]:
        found: dict[str, Any] = self.get(run_id)
        return found

    def get(self, run_id: str, part: str = "", **query: Any) -> Any:
        answer = self.http.get(f"/v1/runs/{run_id}{part}", params=query)
        assert answer.is_success, answer.text
        return answer.json()

    def events(self, run_id: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["seq"] if found else 0
            page = self.get(run_id, "/events", after=after, limit=1000)["data"]
            if not page:
                return found
            found += page

    def of_type(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """The data of all events of a type."""
        return [event["data"] for event in self.events(run_id) if event["type"] == name]

    def log(self, run_id: str, attempt: int, **query: Any) -> str:
        text, after = "", 0
        while True:
            page = self.get(run_id, "/logs", attempt=attempt, after=after, **query)
            text, after = text + page["text"], page["next_offset"]
            if not page["has_more"]:
                return text

    # What follows waits.

    def until(self, run_id: str, holds: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait until the run is as it should be, and return it."""
        seen: list[dict[str, Any]] = []

        def is_so() -> bool:
            seen.append(self.run(run_id))
            return bool(holds(seen[-1])) or seen[-1]["status"] in ENDED

        wait_until(is_so, deadline_s=self.patience_s)
        if not holds(seen[-1]):
            raise AssertionError(f"{seen[-1]}\n{self.tails()}")
        return seen[-1]

    def until_status(self, run_id: str, wanted: str) -> dict[str, Any]:
        return self.until(run_id, lambda run: run["status"] == wanted)

    def until_step(self, run_id: str, step: int) -> dict[str, Any]:
        return self.until(run_id, lambda run: int(run["progress"]["step"]) >= step)

    def until_so(self, holds: Callable[[], object]) -> None:
        assert wait_until(lambda: bool(holds()), deadline_s=self.patience_s), self.tails()

    def tails(self) -> str:
        logs = sorted((self.options.state_dir / "logs").glob("*.log"))
        return "\n".join(f"== {each.name}\n{each.read_text()[-2500:]}" for each in logs)

    # What follows looks at processes: all backends of these tests are on this machine.

    def trainer(self, run_id: str, attempt: int) -> psutil.Process:
        """The trainer of an attempt, once there is one."""
        found: list[psutil.Process] = []
        self.until_so(lambda: found.extend(trainers(run_id, attempt)) or found)
        self.trainers.add(found[0].pid)
        return found[0]

    def left(self, run_id: str) -> list[str]:
        """What is there on this machine of a run: processes, and files in memory."""
        names = [run_id, *(attempt["id"] for attempt in self.run(run_id)["attempts"])]
        mine = [f"{process.pid} {said}" for process, said in told(names)]
        return mine + [
            str(path)
            for path in SHARED_MEMORY.iterdir()
            if any(f"-{pid}-" in path.name for pid in self.trainers)
        ]


def trainers(run_id: str, attempt: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
            its = (_option(words, "--attempt"), Path(_option(words, "--run-dir")).name)
            if "trainer" in words and its == (str(attempt), run_id):
                yield process
        except psutil.Error:
            continue


def _option(words: Sequence[str], name: str) -> str:
    return words[words.index(name) + 1] if name in words[:-1] else ""


def told(names: Sequence[str]) -> Iterator[tuple[psutil.Process, str]]:
    """Processes that were told one of these names, by an argument or a variable."""
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            said = " ".join([*process.cmdline(), *process.environ().values()])
        except (psutil.Error, OSError):
            continue
        if any(name in said for name in names):
            yield process, " ".join(process.cmdline())[:200]


@contextmanager
def running_service(
    folder: Path, variables: Mapping[str, str], **options: Any
) -> Iterator[Service]:
    """Start everything, with variables of the operator; at the end nothing of it is left."""
    saved = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    usual = {"api_port": 0, "trainer_python": TRAINER_PYTHON, "runner_stop_s": 30.0}
    chosen = StackOptions(state_dir=folder / "state", **usual | options)
    said: list[str] = []
    try:
        up_detached(chosen, say=said.append)
        found = connection(chosen.state_dir)
        assert found is not None
        headers = {"Authorization": f"Bearer {found.api_key}"}
        with httpx.Client(
            base_url=found.url, headers=headers, trust_env=False, timeout=60.0
        ) as http:
            yield Service(chosen, http, str(write_model(folder / "model")))
    finally:
        down(chosen.state_dir, say=said.append)
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    assert list(owned_by(chosen.state_dir)) == []


def write_model(folder: Path) -> Path:
    """Write the tiny model, once."""
    if not folder.exists():
        command = [str(TRAINER_PYTHON), "-c", WRITE_MODEL, str(folder)]
        subprocess.run(command, cwd=CODE_ROOT, check=True)
    return folder


@contextmanager
def halted(*pids: int) -> Iterator[None]:
    """Keep processes from doing anything."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGCONT)
