"""Operating-system processes: naming one beyond its pid, starting, signalling, finding ours."""

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hillclimb.stack.binaries import Account
from hillclimb.stack.poll import wait_until

# Every process of a stack, and whatever it starts, carries the state directory under this name.
OWNER_VARIABLE = "HILLCLIMB_STACK_OWNER"

# psutil derives start times from the boot time, which moves a little when the clock is set.
SAME_START_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process that cannot be confused with a later one of the same pid.

    `started` is the start time in seconds since the epoch.
    """

    pid: int
    started: float

    def alive(self) -> bool:
        """True while this very process runs; a zombie counts as dead."""
        now = identify(self.pid)
        return now is not None and abs(now.started - self.started) <= SAME_START_S


def identify(pid: int) -> Identity | None:
    """The process that runs under `pid` now, or None."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return Identity(pid=pid, started=process.create_time())
    except psutil.NoSuchProcess:
        return None


@dataclass(slots=True, kw_only=True)
class Child:
    """A service's process: started by us (`popen`), or adopted from a dead supervisor."""

    identity: Identity
    popen: subprocess.Popen[bytes] | None = None
    exit_code: int | None = None

    def running(self) -> bool:
        """False once it ended; `exit_code` is then known for a child of our own."""
        if self.popen is None:
            return self.identity.alive()
        self.exit_code = self.popen.poll()
        return self.exit_code is None

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to the child's process group; nothing happens when it is gone."""
        if self.running():
            signal_group(self.identity, number)


def spawn(
    command: tuple[str, ...],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    account: Account | None = None,
) -> Child:
    """Start `command` in a session of its own, so a terminal's Ctrl-C does not reach it.

    Its output is appended to `log`, a file: it outlives us, a pipe would not. Raises OSError.
    """
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            cwd=cwd,
            # Others who run as that account could read our own environment in /proc.
            env={**({} if account else os.environ), **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
        )
    # Our own child keeps its pid until we wait for it, so this is never another process.
    return Child(identity=_identity_of_child(popen.pid), popen=popen)


def signal_group(identity: Identity, number: signal.Signals) -> None:
    """Signal the whole group when `identity` leads one (ours all do), else only the process."""
    try:
        if os.getpgid(identity.pid) == identity.pid:
            os.killpg(identity.pid, number)
        else:
            os.kill(identity.pid, number)
    except ProcessLookupError:
        return


def stop_process(identity: Identity, number: signal.Signals, *, deadline_s: float) -> bool:
    """Stop a process that is not our child: `number`, and SIGKILL after `deadline_s`.

    True when it obeyed, False when it had to be killed. What is left of its group is killed too.
    """
    if not identity.alive():
        return True
    signal_group(identity, number)
    obeyed = wait_until(lambda: not identity.alive(), deadline_s=deadline_s)
    if not obeyed:
        signal_group(identity, signal.SIGKILL)
        wait_until(lambda: not identity.alive(), deadline_s=deadline_s)
    kill_group_of(identity)
    return obeyed


def owned_by(state: Path) -> Iterator[tuple[Identity, list[str]]]:
    """Every process that carries our mark (services, trainers, their children) and its command.

    The calling process and its ancestors are left out.
    """
    mark = str(state)
    ourselves = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        try:
            if process.pid in ourselves or process.environ().get(OWNER_VARIABLE) != mark:
                continue
            if process.status() != psutil.STATUS_ZOMBIE:
                identity = Identity(pid=process.pid, started=process.create_time())
                yield identity, process.cmdline()
        except (psutil.Error, OSError):  # it ended meanwhile, or is not ours to look at
            continue


def processes_in(directory: Path) -> list[Identity]:
    """The live processes whose working directory is `directory`, as far as we may look."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()) == directory.resolve():
                found.append(Identity(pid=process.pid, started=process.create_time()))
    return found


def kill_group_of(leader: Identity) -> None:
    """Kill what is left in the group of a service that died (a pool's children, say).

    By group and session, whose number nobody else is given while one of them lives. The mark would
    not do: a process that writes itself a title writes over its environment.
    """
    if identify(leader.pid) is not None:
        return  # it has not died, or another process has its number: then its group was empty
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            mine = os.getpgid(process.pid) == leader.pid == os.getsid(process.pid)
            if mine and process.create_time() >= leader.started - SAME_START_S:
                os.kill(process.pid, signal.SIGKILL)


def _identity_of_child(pid: int) -> Identity:
    return Identity(pid=pid, started=psutil.Process(pid).create_time())
