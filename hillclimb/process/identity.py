"""Trainer processes: starts them detached, identifies them by pid and start time, signals them.

A pid alone does not identify a process: it is reused. The pair of pid and start time does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
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
"""Start times of records before the scale below move with the clock; those of it never do."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
OLDEST_BOOT_S = 1e10
"""No time since 1970 is as large as the start times of the scale of a boot."""


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
    started_at = start_of(psutil.Process(popen.pid))
    return TrainerProcess(record=PidRecord(pid=popen.pid, started_at=started_at), popen=popen)


def start_of(process: psutil.Process) -> float:
    """Return the start time (seconds) on a scale of this boot of the machine.

    The system knows how long after its boot a process started. Seconds since 1970 follow from that
    and the clock: whoever sets the clock by an hour moves the start of every live process by it, as
    if all of them had ended. Where the system names its boots, their name gives the scale's origin.
    Raises psutil.NoSuchProcess.
    """
    origin = _origin_of_boot()
    if origin is None:
        return process.create_time()
    try:
        stat = Path(f"/proc/{process.pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        raise psutil.NoSuchProcess(process.pid) from None
    # The name, which may have spaces, ends with the last parenthesis; 19 fields later is the start.
    ticks = int(stat.rpartition(")")[2].split()[19])
    return origin + ticks / os.sysconf("SC_CLK_TCK")


@cache
def _origin_of_boot() -> float | None:
    """Return the origin of this boot's scale: 136 years apart for two boots, by chance nearer."""
    try:
        return OLDEST_BOOT_S + int(BOOT_ID.read_text().strip()[:8], 16)
    except OSError:
        return None


def start_like(process: psutil.Process, started_at: float) -> float:
    """Return the start time of a process on the scale of another one: versions before used 1970's.

    Raises psutil.NoSuchProcess.
    """
    return start_of(process) if started_at >= OLDEST_BOOT_S else process.create_time()


def is_same_process(pid: int, started_at: float) -> bool:
    """True while the process of this pid and start time runs, not a later one under its pid."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return abs(start_like(process, started_at) - started_at) <= SAME_START_S
    except psutil.NoSuchProcess:
        return False


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
                return PidRecord(pid=process.pid, started_at=start_of(process))
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
