"""Trainer processes: starting one detached, knowing it again, ending it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from trainer.contract.rundir import PidRecord

ATTEMPT_VARIABLE = "HILLCLIMB_ATTEMPT_ID"
HOME_VARIABLE = "HILLCLIMB_RUNNER_HOME"
"""Every trainer, and whatever it starts, carries both: its attempt and its runner's state."""

KEEPS_MARK = {"SPT_NOENV": "1"}
"""Ray's workers and vLLM's engines write a title over their environment, and so over the mark, by
which what holds a GPU is found again; setproctitle leaves the environment alone where it is told
to, and the title is then as long as the command line was."""

SAME_START_S = 2.0
"""Start times are derived from the boot time, which moves a little when the clock is set."""


@dataclass(slots=True, kw_only=True)
class TrainerProcess:
    """A trainer: started by us (`popen`), or adopted from an earlier runner."""

    record: PidRecord
    popen: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        """False once it is gone; a zombie is gone."""
        if self.popen is not None:
            return self.popen.poll() is None
        return is_alive(self.record)

    @property
    def exit_code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs or when it was not our child."""
        return self.popen.returncode if self.popen is not None else None

    def terminate(self) -> None:
        """SIGTERM: checkpoint and leave. Its children are its own business."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL to its whole process group, which it leads."""
        if self.running():
            try:
                os.killpg(self.record.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def _signal(self, number: signal.Signals) -> None:
        if self.running():
            try:
                os.kill(self.record.pid, number)
            except ProcessLookupError:
                return


def start_detached(
    command: tuple[str, ...], *, cwd: Path, environment: Mapping[str, str], log: Path
) -> TrainerProcess:
    """Start a process that outlives us: own session, output to a file. Raises OSError."""
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment) | KEEPS_MARK,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    # Our own child keeps its pid until we wait for it, so this is never another process.
    started_at = psutil.Process(popen.pid).create_time()
    return TrainerProcess(record=PidRecord(pid=popen.pid, started_at=started_at), popen=popen)


def is_alive(record: PidRecord) -> bool:
    """True while this very process runs, not a later one under the same pid."""
    try:
        process = psutil.Process(record.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(process.create_time() - record.started_at) <= SAME_START_S
    except psutil.NoSuchProcess:
        return False


def marked(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Every process that carries the mark of the runner in `home`, with its attempt's id."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(HOME_VARIABLE) != str(home) or process.pid == os.getpid():
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                yield environment.get(ATTEMPT_VARIABLE, ""), process
        except (psutil.Error, OSError):  # it ended meanwhile, or is not ours to look at
            continue


def find_leader(home: Path, attempt_id: str) -> PidRecord | None:
    """The trainer of an attempt, found by its mark: the one that leads its session."""
    for owner, process in marked(home):
        try:
            if owner == attempt_id and os.getsid(process.pid) == process.pid:
                return PidRecord(pid=process.pid, started_at=process.create_time())
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return None


def kill_marked(home: Path, attempt_id: str) -> int:
    """SIGKILL what a dead trainer left behind; returns how many processes that were."""
    left = [process for owner, process in marked(home) if owner == attempt_id]
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return len(left)


def describe_exit(code: int | None) -> str:
    """`exited with 1`, `was killed by SIGKILL`, or `ended` for a process that was adopted."""
    if code is None:
        return "ended without a word"
    if code >= 0:
        return f"exited with {code}"
    return f"was killed by {signal.Signals(-code).name}"
