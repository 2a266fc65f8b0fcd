"""`python -m trainer.node` at work for tests: real processes, the fake trainer, real files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hillclimb.process.identity import HOME_VARIABLE, is_alive
from hillclimb.protocol.rundir import AttemptDir, PidRecord
from hillclimb.stack.system.poll import wait_until
from tests.worker import fake_trainer

ROOT = Path(__file__).parents[3]
DATA_PLANE = ROOT / ".venv-trainer/bin/python"
DEADLINE_S = 60.0


@dataclass(slots=True, kw_only=True)
class NodeBench:
    """One rented gang's home on this machine, and its nodes' processes."""

    folder: Path
    variables: Mapping[str, str]
    """What every node is told."""
    ips: tuple[str, ...] = ("127.0.0.1",)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def blobs(self) -> Path:
        return self.folder / "blobs"

    @property
    def gates(self) -> Path:
        return self.folder / "gates"

    @property
    def log(self) -> Path:
        return self.folder / "nodes.log"

    def prepare(self) -> None:
        self.gates.mkdir(parents=True, exist_ok=True)
        python = self.folder / "python"
        start = f"exec env PYTHONPATH={ROOT} {sys.executable} {fake_trainer.__file__}"
        python.write_text(f'#!/bin/sh\n{start} "$@"\n')
        python.chmod(0o755)

    def start(self, rank: int = 0, job: str = "job-1", **more: str) -> subprocess.Popen[bytes]:
        told = {
            "PYTHONPATH": str(ROOT),
            "HILLCLIMB_BLOBS_URL": str(self.blobs),
            "HILLCLIMB_NODE_HOME": str(self.home),
            "HILLCLIMB_TRAINER_PYTHON": str(self.folder / "python"),
            "HILLCLIMB_NODE_MIN_DISK_GB": "0.1",
            "HILLCLIMB_NODE_MIN_MEMORY_GB": "0.5",
            "FAKE_TRAINER_GATES": str(self.gates),
            "SKYPILOT_NODE_RANK": str(rank),
            "SKYPILOT_NODE_IPS": "\n".join(self.ips),
            "SKYPILOT_NUM_NODES": str(len(self.ips)),
            "SKYPILOT_TASK_ID": job,
        }
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [str(DATA_PLANE), "-m", "trainer.node"],
                cwd=self.folder,
                env={**os.environ, **told, **self.variables, **more},
                stdout=log,
                stderr=log,
            )
        self.processes.append(process)
        return process

    def hold(self, step: int) -> Path:
        gate = self.gates / f"hold-{step}"
        gate.touch()
        return gate

    def attempt_dir(self) -> AttemptDir:
        return AttemptDir(self.home / "runs" / self.variables["HILLCLIMB_RUN_ID"], 1)

    def trainer(self) -> PidRecord:
        """The live trainer, once its pid is written down."""
        attempt_dir = self.attempt_dir()
        self.until(attempt_dir.pid.exists)
        return PidRecord.model_validate_json(attempt_dir.pid.read_bytes())

    def trains(self, num_events: int) -> None:
        """Wait until the trainer has written so many events."""
        events = self.attempt_dir().events
        self.until(lambda: events.exists() and events.read_bytes().count(b"\n") >= num_events)

    def until(self, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        if not wait_until(condition, deadline_s=deadline_s):
            raise AssertionError(self.log.read_text() if self.log.exists() else "nothing started")

    def exit_code(self, process: subprocess.Popen[bytes], deadline_s: float = DEADLINE_S) -> int:
        self.until(lambda: process.poll() is not None, deadline_s)
        return process.returncode

    def left(self) -> list[psutil.Process]:
        """What any node of this home has started and is still there."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(HOME_VARIABLE, "").startswith(str(self.home)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def clean(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.wait()
        for left in self.left():
            left.kill()


def gone(record: PidRecord) -> Callable[[], bool]:
    return lambda: not is_alive(record)
