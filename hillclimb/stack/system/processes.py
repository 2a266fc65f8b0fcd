"""Operating-system processes: identifying, starting, signalling and finding them."""

import os
import signal
import subprocess
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from hillclimb.process.identity import SAME_START_S, is_same_process, start_like, start_of
from hillclimb.stack.system.binaries import SystemUser
from hillclimb.stack.system.cloud_keys import without_cloud_keys
from hillclimb.stack.system.poll import wait_until

# Every process of a stack, and whatever it starts, carries the state directory under this name.
OWNER_VARIABLE = "HILLCLIMB_STACK_OWNER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A process that cannot be confused with a later one of the same pid.

    `started` is the start time in seconds (`hillclimb.process.identity.start_of`).
    """

    pid: int
    started: float

    def alive(self) -> bool:
        """Tell whether this process (not a later one of its pid) runs; a zombie counts as dead."""
        return is_same_process(self.pid, self.started)


def identify(pid: int) -> Identity | None:
    """Return the process that runs under `pid` now, or None."""
    try:
        process = psutil.Process(pid)
        is_over = process.status() == psutil.STATUS_ZOMBIE
        return None if is_over else Identity(pid=pid, started=start_of(process))
    except psutil.NoSuchProcess:
        return None


@dataclass(slots=True, kw_only=True)
class Child:
    """A service's process: started by us (`popen`), or adopted from a dead supervisor."""

    identity: Identity
    popen: subprocess.Popen[bytes] | None = None
    exit_code: int | None = None

    def running(self) -> bool:
        """Tell whether it runs; after its end `exit_code` is known for a child of our own."""
        if self.popen is None:
            return self.identity.alive()
        self.exit_code = self.popen.poll()
        return self.exit_code is None

    def signal(self, number: signal.Signals) -> None:
        """Send `number` to the child's process group; does nothing after its end."""
        if self.running():
            signal_group(self.identity, number)


def spawn(
    command: tuple[str, ...],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    log: Path,
    account: SystemUser | None = None,
    withheld: Collection[str] = (),
) -> Child:
    """Start `command` in a new session, so a terminal's Ctrl-C does not reach it.

    It gets our variables, without those that are withheld, and `environment`. Its output is
    appended to `log`, a file: it outlives us, a pipe would not. Raises OSError.
    """
    # Others who run as that account could read our own environment in /proc.
    inherited = {} if account else without_cloud_keys(os.environ)
    passed = {name: value for name, value in inherited.items() if name not in withheld}
    with log.open("ab") as output:
        popen = subprocess.Popen(
            command,
            cwd=cwd,
            env={**passed, **environment},
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
    """Signal the whole group if `identity` leads one (ours all do), else only the process."""
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
                identity = Identity(pid=process.pid, started=start_of(process))
                yield identity, process.cmdline()
        except (psutil.Error, OSError):  # it ended meanwhile, or access is denied
            continue


def processes_in(directory: Path) -> list[Identity]:
    """Return the live processes whose working directory is `directory`, as far as permitted."""
    identities = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if Path(process.cwd()) == directory.resolve():
                identities.append(Identity(pid=process.pid, started=start_of(process)))
    return identities


def kill_group_of(leader: Identity) -> None:
    """Kill the remaining processes in the group of a dead service (a pool's children, say).

    They are found by group and session, whose number is not reused while one of them lives. The
    mark is not reliable here: a process that sets its title overwrites its environment.
    """
    if identify(leader.pid) is not None:
        return  # still alive, or another process has its pid: then its group was empty
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            mine = os.getpgid(process.pid) == leader.pid == os.getsid(process.pid)
            if mine and start_like(process, leader.started) >= leader.started - SAME_START_S:
                os.kill(process.pid, signal.SIGKILL)


def _identity_of_child(pid: int) -> Identity:
    return Identity(pid=pid, started=start_of(psutil.Process(pid)))
