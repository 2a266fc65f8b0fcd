"""Several processes that accept connections from one socket, and the parent that keeps them.

The socket is the parent's: what waits in its queue when a process dies is accepted by another one.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import sys
import time
from multiprocessing.synchronize import Event

import uvicorn
from uvicorn.supervisors import Multiprocess

from hillclimb.process.lazy_imports import gc_paused_import

STARTUP_FAILURE = 3
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
"""Before a process is started again; doubled while its successors end early."""
EARLY_S = 60.0

log = logging.getLogger("uvicorn.error")


class ApiConfig(uvicorn.Config):
    """The server's settings, which also import the application: in each process its own."""

    def load(self) -> None:
        """Import and make the application."""
        with gc_paused_import():
            super().load()


class ApiServer(uvicorn.Server):
    """The server of one process, which ends with its parent and says if it did not start."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._made_by = os.getpid()
        self.one_has_started: Event | None = None
        """Of several processes with this server: set once any of them accepts connections.

        Its semaphores have names in /dev/shm, which a process that a signal ends leaves there; the
        parent of several outlives its signals.
        """

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve; exits with `STARTUP_FAILURE` if the application does not start."""
        super().run(sockets)
        if not self.started:
            sys.exit(STARTUP_FAILURE)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application and accept connections."""
        await super().startup(sockets)
        if self.started and self.one_has_started is not None:
            self.one_has_started.set()

    async def on_tick(self, counter: int) -> bool:
        """Tell whether to stop: orphans would keep the address from the next parent."""
        is_orphan = self._made_by not in (os.getpid(), os.getppid())
        return await super().on_tick(counter) or is_orphan


class ApiProcesses(Multiprocess):
    """The parent: replaces processes that died, and those that do not respond for 5 s."""

    def __init__(
        self,
        config: uvicorn.Config,
        server: ApiServer,
        sockets: list[socket.socket],
    ) -> None:
        self._one_has_started = multiprocessing.get_context("spawn").Event()
        server.one_has_started = self._one_has_started
        super().__init__(config, server.run, sockets)
        self.exit_code = 0
        self._started_at = [time.monotonic()] * config.workers
        self._pause_s = [FIRST_PAUSE_S] * config.workers
        self._start_at: dict[int, float] = {}

    def serve(self) -> int:
        """Run the processes until a signal; return 3 if the application does not start, else 0."""
        self.run()
        return self.exit_code

    def keep_subprocess_alive(self) -> None:
        """Look at each process once; called twice a second."""
        for number in range(len(self.processes)):
            if self.should_exit.is_set():
                return
            if number in self._start_at:
                self._start_in_time(number)
            elif not self._responds(number):
                self._end(number)

    def _responds(self, number: int) -> bool:
        try:
            return self.processes[number].is_alive()
        except (OSError, EOFError):  # it died between two looks
            return False

    def _end(self, number: int) -> None:
        """End what is left of a process, and decide when it starts again."""
        process, now = self.processes[number], time.monotonic()
        process.kill()
        process.join()
        code = process.process.exitcode
        if code == STARTUP_FAILURE and not self._one_has_started.is_set():
            self.exit_code = STARTUP_FAILURE
            self.should_exit.set()
            return
        is_early = now - self._started_at[number] < EARLY_S
        pause_s = self._pause_s[number] if is_early else FIRST_PAUSE_S
        self._pause_s[number] = min(2 * pause_s, LONGEST_PAUSE_S)
        self._start_at[number] = now + pause_s
        log.warning("API process %s ended (%s): starts in %g s", process.pid, code, pause_s)

    def _start_in_time(self, number: int) -> None:
        now = time.monotonic()
        if now < self._start_at[number]:
            return
        del self._start_at[number]
        process = type(self.processes[number])(self.config, self.target, self.sockets)
        process.start()
        self.processes[number], self._started_at[number] = process, now
