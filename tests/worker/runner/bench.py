"""A runner process at work for tests: real `python -m worker.runner`, real trainer processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.process.identity import find_marked, is_alive
from hillclimb.protocol.rundir import AttemptDir, PidRecord
from hillclimb.stack.system.poll import wait_until
from tests.worker import fake_trainer

ROOT = Path(__file__).parents[3]
DEADLINE_S = 20.0


@dataclass(slots=True, kw_only=True)
class Bench:
    """State directory, gates of the fake trainer, and the runner's process."""

    folder: Path
    url: str
    token: str
    environment: dict[str, str] = field(default_factory=dict)
    code: Path = ROOT
    """The runner's; the fake trainer is always this checkout's."""
    process: subprocess.Popen[bytes] | None = None

    @property
    def state(self) -> Path:
        return self.folder / "state"

    @property
    def blobs(self) -> Path:
        return self.state / "blobs"

    @property
    def gates(self) -> Path:
        return self.folder / "gates"

    def prepare(self) -> None:
        self.gates.mkdir(parents=True, exist_ok=True)
        self.state.mkdir(exist_ok=True)
        python = self.folder / "python"
        python.write_text(
            f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} {fake_trainer.__file__} "$@"\n'
        )
        python.chmod(0o755)

    def start(self) -> subprocess.Popen[bytes]:
        variables = {
            "HILLCLIMB_STATE_DIR": str(self.state),
            "HILLCLIMB_API_URL": self.url,
            "HILLCLIMB_RUNNER_TOKEN": self.token,
            "HILLCLIMB_RUNNER_NAME": "bench",
            "HILLCLIMB_BLOBS_URL": str(self.blobs),
            "HILLCLIMB_TRAINER_PYTHON": str(self.folder / "python"),
            "HILLCLIMB_READY_FILE": str(self.folder / "ready"),
            "FAKE_TRAINER_GATES": str(self.gates),
        }
        with (self.folder / "runner.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "worker.runner"],
                cwd=self.code,
                env={**os.environ, **variables, **self.environment},
                stdout=log,
                stderr=log,
            )
        return self.process

    def kill_runner(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop_runner(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)

    def hold(self, step: int) -> Path:
        gate = self.gates / f"hold-{step}"
        gate.touch()
        return gate

    def attempt_dir(self, run_id: str, attempt: int) -> AttemptDir:
        return AttemptDir(self.state / "runs" / run_id, attempt)

    def trainer(self, attempt_dir: AttemptDir) -> PidRecord:
        """The live trainer of an attempt, once its pid is written down."""
        self.until(attempt_dir.pid.exists)
        return PidRecord.model_validate_json(attempt_dir.pid.read_bytes())

    def num_lines(self, attempt_dir: AttemptDir) -> int:
        return attempt_dir.events.read_bytes().count(b"\n") if attempt_dir.events.exists() else 0

    def until(self, condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
        said = self.folder / "runner.log"
        if not wait_until(condition, deadline_s=deadline_s):
            raise AssertionError(said.read_text() if said.exists() else "the runner never started")

    def leftovers(self) -> list[int]:
        return [process.pid for _, process in find_marked(self.state / "runner")]

    def clean(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill_runner()
        for _, process in list(find_marked(self.state / "runner")):
            process.kill()


def gone(record: PidRecord) -> Callable[[], bool]:
    return lambda: not is_alive(record)
