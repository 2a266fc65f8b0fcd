"""The supervisor: one foreground process that starts, watches, restarts and stops the services."""

import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType

from hillclimb.stack.errors import ServiceFailed
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ProcessRecord, StackRecord, StackState
from hillclimb.stack.supervisor.service import Backoff, SupervisedService
from hillclimb.stack.supervisor.spec import ServiceSpec
from hillclimb.stack.supervisor.sweep import sweep
from hillclimb.stack.system.processes import identify

TICK_S = 0.2
STARTING_TICK_S = 0.1
HURRIED_STOP_S = 2.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(slots=True)
class Supervisor:
    """Runs `specs` (in start order) on a state directory whose lock the caller holds.

    `ports` are remembered for the next start; `say` receives one line per event.
    """

    specs: Sequence[ServiceSpec]
    directory: StateDirectory
    say: Callable[[str], None]
    ports: dict[str, int] = field(default_factory=dict)
    backoff: Backoff = field(default_factory=Backoff)
    _services: list[SupervisedService] = field(default_factory=list)
    _state: StackState = "starting"
    _error: str | None = None
    _stop_requests: int = 0
    _wakeup: socket.socket | None = None

    def run(self) -> int:
        """Supervise until a stop signal; return 0 then, 1 if a service did not start.

        SIGINT, SIGTERM and SIGHUP stop everything in reverse order; a second one cuts the
        deadlines to 2 s. Whatever happens, no process of the stack is left when this returns.
        """
        with self._signals():
            try:
                self._adopt()
                while not self._stop_requests:
                    self._tick()
            except ServiceFailed as error:
                self._error = str(error)
                self._announce(str(error))
            finally:
                self._stop()
        return 1 if self._error else 0

    def _adopt(self) -> None:
        previous = self.directory.read().services
        for spec in self.specs:
            service = SupervisedService(spec, self.directory, self.backoff)
            service.adopt(previous.get(spec.name))
            self._services.append(service)
        self._notify()
        self._write()

    def _tick(self) -> None:
        changed = False
        for service in self._services:
            if self._stop_requests:
                return
            met = all(s.satisfied for s in self._services if s.spec.name in service.spec.needs)
            if service.advance(needs_met=met):
                # Written at once: a supervisor killed now must find its child again.
                self._write()
                changed = True
        self._notify()
        if self._state == "starting" and all(s.satisfied for s in self._services):
            self._state = "ready"
            self._write()
            self._announce("stack: ready")
        if not changed:
            settled = all(s.state in ("ready", "done") for s in self._services)
            self._wait(TICK_S if settled else STARTING_TICK_S)

    def _stop(self) -> None:
        self._state = "stopping"
        self._write()
        for service in reversed(self._services):
            self._stop_one(service)
            self._write()
        for line in sweep(self.directory.path):
            self._announce(line)
        self._state = "failed" if self._error else "stopped"
        self._write()
        self._announce(f"stack: {self._state}")

    def _stop_one(self, service: SupervisedService) -> None:
        started = time.monotonic()
        service.begin_stop()
        if service.state != "stopping":
            service.ended()
            return
        killed = False
        while not service.ended():
            limit = HURRIED_STOP_S if self._stop_requests > 1 else service.spec.stop_s
            if not killed and time.monotonic() - started > limit:
                service.kill()
                killed = True
            self._wait(TICK_S)
        how = "killed, it did not stop in time" if killed else "stopped"
        self._announce(f"{service.spec.name}: {how} ({time.monotonic() - started:.1f} s)")

    def _notify(self) -> None:
        for service in self._services:
            for line in service.news:
                self._announce(line)
            service.news.clear()

    def _announce(self, line: str) -> None:
        """Print a line, ignoring a closed terminal, which must not interrupt stopping."""
        # Printers such as rich turn a broken pipe into SystemExit.
        with suppress(OSError, ValueError, SystemExit):
            self.say(line)

    def _write(self) -> None:
        me = identify(os.getpid())
        assert me is not None
        running = self._state not in ("stopped", "failed")
        record = StackRecord(
            state=self._state,
            error=self._error,
            supervisor=ProcessRecord(pid=me.pid, started=me.started) if running else None,
            ports=self.ports,
            services={s.spec.name: s.record() for s in self._services},
        )
        try:
            self.directory.write(record)
        except OSError as error:  # a full disk must not take the running services down
            self._announce(f"stack: {self.directory.record_file} cannot be written: {error}")

    def _wait(self, seconds: float) -> None:
        """Sleep until the next poll or any signal, such as a child's exit."""
        assert self._wakeup is not None
        select.select([self._wakeup], [], [], seconds)
        with suppress(BlockingIOError):
            self._wakeup.recv(4096)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Install signal handlers before the first child; a byte per signal wakes `_wait`."""
        wakeup, sender = socket.socketpair()
        wakeup.settimeout(0)
        sender.settimeout(0)
        self._wakeup = wakeup
        old_wakeup = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        old = {number: signal.signal(number, self._request_stop) for number in STOP_SIGNALS}
        old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _only_wake)
        try:
            yield
        finally:
            for number, handler in old.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(old_wakeup)
            wakeup.close()
            sender.close()

    def _request_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stop_requests += 1


def _only_wake(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: SIGCHLD needs a handler for the wake-up byte to be written."""
