"""Trainer processes: starts them detached, identifies them by pid and start time, signals them.

A pid alone does not identify a process: it is reused. The pair of pid and start time does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from hillclimb.protocol.rundir import PidRecord

ATTEMPT_VARIABLE = "HILLCLIMB_ATTEMPT_ID"
HOME_VARIABLE = "HILLCLIMB_RUNNER_HOME"
"""The mark: every trainer and its children carry both variables, attempt and runner's folder."""

KEEPS_MARK = {"SPT_NOENV": "1"}
"""Ray's workers and vLLM's engines set a process title, which overwrites their environment and the
mark in it, by which processes that hold a GPU are found. With this variable setproctitle leaves
the environment alone; a title is then cut to the length of the command line."""

SAME_START_S = 2.0
"""Start times are derived from the boot time, which moves a little when the clock is set."""


@dataclass(slots=True, kw_only=True)
class TrainerProcess:
    """A trainer: started by us (`popen`), or adopted from an earlier runner."""

    record: PidRecord
    popen: subprocess.Popen[bytes] | None = None

    def running(self) -> bool:
        """False once it has exited; a zombie has."""
        if self.popen is not None:
            return self.popen.poll() is None
        return is_alive(self.record)

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs or if not our child."""
        return self.popen.returncode if self.popen is not None else None

    def terminate(self) -> None:
        """Send SIGTERM to the trainer alone: it checkpoints, ends its children and exits."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its whole process group, which it leads."""
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


def start_time(pid: int) -> float | None:
    """Return the start time (seconds since the epoch) of a live process; None for a zombie too."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def is_same_process(pid: int, started_at: float) -> bool:
    """True while the process of this pid and start time runs, not a later one under its pid."""
    current = start_time(pid)
    return current is not None and abs(current - started_at) <= SAME_START_S


def is_alive(record: PidRecord) -> bool:
    """True while the recorded process runs."""
    return is_same_process(record.pid, record.started_at)


def find_marked(home: Path) -> Iterator[tuple[str, psutil.Process]]:
    """Yield every live process with the mark of the runner in `home`, with its attempt's id."""
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            if environment.get(HOME_VARIABLE) != str(home) or process.pid == os.getpid():
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                yield environment.get(ATTEMPT_VARIABLE, ""), process
        except (psutil.Error, OSError):  # it ended meanwhile, or is not ours to look at
            continue


def find_trainer_process(home: Path, attempt_id: str) -> PidRecord | None:
    """Find an attempt's trainer by its mark: the marked process that leads its session."""
    for owner, process in find_marked(home):
        try:
            if owner == attempt_id and os.getsid(process.pid) == process.pid:
                return PidRecord(pid=process.pid, started_at=process.create_time())
        except (ProcessLookupError, psutil.NoSuchProcess):
            continue
    return None


def kill_marked(home: Path, attempt_id: str) -> int:
    """Kill every process with an attempt's mark; returns their count."""
    processes = [process for owner, process in find_marked(home) if owner == attempt_id]
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    return len(processes)


def describe_exit(code: int | None) -> str:
    """Return `exited with 1`, `was killed by SIGKILL`, or a text without the code if unknown."""
    if code is None:
        return "ended without a known exit code"
    if code >= 0:
        return f"exited with {code}"
    return f"was killed by {signal.Signals(-code).name}"
