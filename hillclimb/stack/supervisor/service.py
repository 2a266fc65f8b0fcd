"""One service under supervision: start, wait for readiness, restart with backoff, stop."""

import signal
import time
from dataclasses import dataclass, field

from hillclimb.stack.errors import ServiceFailed, StackError
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ProcessRecord, ServiceRecord, ServiceState
from hillclimb.stack.supervisor.spec import ServiceLog, ServiceSpec
from hillclimb.stack.system.processes import (
    OWNER_VARIABLE,
    Child,
    kill_group_of,
    owned_by,
    spawn,
    stop_process,
)

LOG_LIMIT_BYTES = 32 * 2**20
LOG_TAIL_LINES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Delay before the n-th restart in a row: `first_s`, doubled each time, at most `most_s`.

    A service that was ready for `reset_after_s` starts again at the first delay. One that was never
    ready is given up after `attempts` starts.
    """

    first_s: float = 0.5
    most_s: float = 30.0
    reset_after_s: float = 60.0
    attempts: int = 5

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after `failures` >= 1 failures in a row."""
        return min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 16))


@dataclass(slots=True)
class SupervisedService:
    """The life of one service. `advance` is called often and never blocks for long.

    Messages for the person at the terminal are collected in `news` by their state changes.
    """

    spec: ServiceSpec
    directory: StateDirectory
    backoff: Backoff
    state: ServiceState = "waiting"
    child: Child | None = None
    restarts: int = 0
    failures: int = 0
    was_ready: bool = False
    last_exit: str | None = None
    ready_at: float | None = None
    log_offset: int = 0
    news: list[str] = field(default_factory=list)
    _next_start: float = 0.0
    _start_deadline: float = 0.0
    _since: float = 0.0

    @property
    def satisfied(self) -> bool:
        """Tell whether services that need this one may start."""
        return self.state == ("done" if self.spec.one_shot else "ready")

    def adopt(self, record: ServiceRecord | None) -> None:
        """Adopt the process of an earlier supervisor, or stop it if it differs from the spec.

        Found by the record, or, when the supervisor died before it could write one, by our mark
        and the very same command line.
        """
        identity = record.process.identity if record and record.process else None
        if identity is None or not identity.alive():
            same = [i for i, cmd in owned_by(self.directory.path) if cmd == [*self.spec.command]]
            if not same or self.spec.one_shot:
                return
            identity, record = same[0], None
        if record is not None and record.fingerprint != self.spec.fingerprint():
            stop_process(identity, self.spec.stop_signal, deadline_s=self.spec.stop_s)
            self.news.append(f"{self.spec.name}: stopped pid {identity.pid}, its settings changed")
            return
        self.child = Child(identity=identity)
        self.restarts = record.restarts if record else 0
        self.log_offset = record.log_offset if record else 0
        self._become("starting", f"adopted pid {identity.pid}")
        self._start_deadline = time.monotonic() + self.spec.start_s

    def advance(self, *, needs_met: bool) -> bool:
        """Take the next step if there is one; True when the state changed.

        Raises ServiceFailed when a one-shot failed or the service will not start.
        """
        before = (self.state, self.child)
        if self.state == "waiting" and needs_met:
            self._start()
        elif self.state == "backoff":
            if time.monotonic() >= self._next_start:
                self.state = "waiting"
        elif self.state in ("starting", "ready"):
            self._watch()
        return (self.state, self.child) != before

    def begin_stop(self) -> None:
        """Send the stop signal to the process, if there is one."""
        if self.child is not None and self.child.running():
            self.child.signal(self.spec.stop_signal)
            self.state = "stopping"

    def ended(self) -> bool:
        """True when no process is left; after `begin_stop`."""
        if self.child is not None:
            if self.child.running():
                return False
            kill_group_of(self.child.identity)
        self.child = None
        if self.state not in ("done", "failed"):
            self.state = "stopped"
        return True

    def kill(self) -> None:
        """SIGKILL the whole process group."""
        if self.child is not None:
            self.child.signal(signal.SIGKILL)

    def record(self) -> ServiceRecord:
        """Return the service's record for `stack.json`."""
        identity = self.child.identity if self.child else None
        return ServiceRecord(
            state=self.state,
            process=identity and ProcessRecord(pid=identity.pid, started=identity.started),
            port=self.spec.port,
            restarts=self.restarts,
            last_exit=self.last_exit,
            ready_at=self.ready_at,
            fingerprint=self.spec.fingerprint(),
            log=str(self.directory.log(self.spec.name)),
            log_offset=self.log_offset,
            stop_signal=int(self.spec.stop_signal),
            stop_s=self.spec.stop_s,
        )

    def log_tail(self) -> str:
        """Return the last lines of output of the current or last process."""
        return "\n".join(self._log().text().splitlines()[-LOG_TAIL_LINES:])

    def _start(self) -> None:
        log = self.directory.log(self.spec.name)
        try:
            if self.spec.prepare is not None:
                self.spec.prepare()
            if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
                log.replace(log.with_suffix(".log.1"))
            self.log_offset = log.stat().st_size if log.exists() else 0
            self.child = spawn(
                self.spec.command,
                cwd=self.spec.cwd,
                environment={**self.spec.environment, OWNER_VARIABLE: str(self.directory.path)},
                withheld=self.spec.withheld,
                log=log,
                account=self.spec.account,
            )
        except (OSError, StackError) as error:
            if not self.was_ready:
                raise ServiceFailed(f"{self.spec.name} cannot be started: {error}") from error
            self._retry(f"cannot be started: {error}")
            return
        self._since = time.monotonic()
        self._start_deadline = self._since + self.spec.start_s
        self.state = "starting"

    def _watch(self) -> None:
        assert self.child is not None
        if not self.child.running():
            kill_group_of(self.child.identity)
            self._on_exit(self.child.exit_code)
        elif self.state == "ready" or self.spec.one_shot:
            if self.spec.one_shot and time.monotonic() > self._start_deadline:
                self._give_up(f"took longer than {self.spec.start_s:g} s")
        elif (missing := self.spec.ready(self._log())) is None:
            self.was_ready = True
            self.ready_at = time.time()
            where = f" on 127.0.0.1:{self.spec.port}" if self.spec.port else ""
            took = time.monotonic() - self._since
            self._become("ready", f"ready{where} (pid {self.child.identity.pid}, {took:.1f} s)")
        elif time.monotonic() > self._start_deadline:
            self.kill()
            self._retry(f"not ready within {self.spec.start_s:g} s: {missing}")

    def _on_exit(self, code: int | None) -> None:
        how = describe_exit(code)
        if not self.spec.one_shot:
            self._retry(how)
        elif code == 0:
            self.child = None
            self._become("done", f"done ({time.monotonic() - self._since:.1f} s)")
        else:
            self._give_up(how)

    def _retry(self, how: str) -> None:
        if self.state == "ready" and time.monotonic() - self._since > self.backoff.reset_after_s:
            self.failures = 0
        self.failures += 1
        self.last_exit = how
        if not self.was_ready and self.failures >= self.backoff.attempts:
            self._give_up(f"{how}, {self.failures} times")
        delay = self.backoff.delay_s(self.failures)
        self.restarts += 1
        self.child = None
        self.ready_at = None
        self._next_start = time.monotonic() + delay
        self._become("backoff", f"{how}; restarting in {delay:.1f} s")

    def _give_up(self, how: str) -> None:
        self.last_exit = how
        self.state = "failed"
        raise ServiceFailed(
            f"{self.spec.name} {how}. Last lines of {self.directory.log(self.spec.name)}:\n"
            f"{self.log_tail()}"
        )

    def _become(self, state: ServiceState, message: str) -> None:
        self.state = state
        self._since = time.monotonic()
        self.news.append(f"{self.spec.name}: {message}")

    def _log(self) -> ServiceLog:
        return ServiceLog(path=self.directory.log(self.spec.name), offset=self.log_offset)


def describe_exit(code: int | None) -> str:
    """`exited with 1`, `killed by SIGKILL`, or `ended` for an adopted process."""
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with {code}"
    return f"killed by {signal.Signals(-code).name}"
