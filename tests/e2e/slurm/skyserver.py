"""SkyPilot's real API server as `hillclimb up --with-sky` runs it, for the length of a block."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from hillclimb.stack.poll import wait_until
from hillclimb.stack.probes import http_ready
from hillclimb.stack.processes import (
    OWNER_VARIABLE,
    Child,
    kill_group_of,
    owned_by,
    spawn,
    stop_process,
)
from hillclimb.stack.sky import SkyServer, find_sky_port
from hillclimb.stack.spec import ServiceLog

START_S, STOP_S = 180.0, 20.0


@dataclass(slots=True, kw_only=True)
class RunningSky:
    """The server, and everything that it started: all of it carries our mark."""

    server: SkyServer
    log: Path
    child: Child | None = field(default=None)

    def start(self) -> None:
        """Start it and wait until it answers. Raises RuntimeError with the end of its log."""
        self.server.initialise()
        self.child = spawn(
            self.server.command(),
            cwd=self.server.directory,
            environment={**self.server.environment(), OWNER_VARIABLE: str(self.server.directory)},
            log=self.log,
        )
        probe = http_ready(self.server.port, "/api/health")
        log = ServiceLog(path=self.log, offset=0)
        if not wait_until(lambda: probe(log) is None, deadline_s=START_S):
            raise RuntimeError(f"SkyPilot's API server: {log.text()[-2000:]}")

    def kill(self) -> None:
        """`kill -9` of the server, then of its group, as the supervisor does."""
        assert self.child is not None
        os.kill(self.child.identity.pid, signal.SIGKILL)
        wait_until(lambda: not self._child().running(), deadline_s=STOP_S)
        kill_group_of(self.child.identity)

    def stop(self) -> None:
        """Stop it, with whatever of it is left."""
        if self.child is not None:
            self._child().signal(signal.SIGTERM)
            if not wait_until(lambda: not self._child().running(), deadline_s=STOP_S):
                self._child().signal(signal.SIGKILL)
                wait_until(lambda: not self._child().running(), deadline_s=STOP_S)
            kill_group_of(self.child.identity)
        for identity, _ in owned_by(self.server.directory):
            stop_process(identity, signal.SIGKILL, deadline_s=5)

    def processes(self) -> list[str]:
        """Every live process of its group, or with its mark: a title overwrites the mark."""
        return [f"{each.pid} {words}" for each in self._processes() if (words := _words(each))]

    def resident_mb(self) -> int:
        """Memory of all its processes together, shared pages counted for each (MB)."""
        return sum(_resident(each) for each in self._processes()) // 2**20

    def _processes(self) -> list[psutil.Process]:
        marked = {identity.pid for identity, _ in owned_by(self.server.directory)}
        group = self._child().identity.pid
        return [
            each
            for each in psutil.process_iter()
            if each.pid in marked or (each.is_running() and _group(each.pid) == group)
        ]

    def _child(self) -> Child:
        assert self.child is not None
        return self.child


@contextmanager
def running_sky(directory: Path, origin: Path) -> Iterator[RunningSky]:
    """A server with its state in `directory` and the credentials that lie in `origin`."""
    server = SkyServer(directory=directory, port=find_sky_port(), origin=origin)
    running = RunningSky(server=server, log=directory / "server.log")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        running.start()
        yield running
    finally:
        running.stop()


def _words(process: psutil.Process) -> str:
    """Command line; none of a process that has ended, which a zombie has too."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _resident(process: psutil.Process) -> int:
    """Bytes; none of a process that has ended since it was listed."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
