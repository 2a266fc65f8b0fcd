"""`stack.json`: record of the stack's processes, for `up`, `down` and `status`, without secrets."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

from hillclimb.stack.system.processes import Identity

ServiceState = Literal[
    "waiting", "starting", "ready", "backoff", "done", "failed", "stopping", "stopped"
]
StackState = Literal["starting", "ready", "stopping", "stopped", "failed"]


class ProcessRecord(BaseModel):
    """A process by pid and start time (seconds)."""

    model_config = ConfigDict(frozen=True)

    pid: int
    started: float

    @property
    def identity(self) -> Identity:
        """The process's identity, which tells whether it is alive."""
        return Identity(pid=self.pid, started=self.started)


class ServiceRecord(BaseModel):
    """Last known state of a service; enough to stop it without its specification."""

    model_config = ConfigDict(frozen=True)

    state: ServiceState
    process: ProcessRecord | None = None
    port: int | None = None
    restarts: int = 0
    last_exit: str | None = None
    ready_at: float | None = None
    fingerprint: str
    log: str
    log_offset: int = 0
    stop_signal: int
    stop_s: float


class StackRecord(BaseModel):
    """Record of the stack; `services` is in start order, the next `up` reuses `ports`."""

    model_config = ConfigDict(frozen=True)

    version: Literal[1] = 1
    state: StackState = "stopped"
    error: str | None = None
    supervisor: ProcessRecord | None = None
    ports: dict[str, int] = {}
    services: dict[str, ServiceRecord] = {}

    @property
    def url(self) -> str | None:
        """The API's base URL, once a port was chosen."""
        port = self.ports.get("api")
        return None if port is None else f"http://127.0.0.1:{port}"

    def supervised(self) -> bool:
        """Tell whether the supervisor that wrote this record is alive."""
        return self.supervisor is not None and self.supervisor.identity.alive()
