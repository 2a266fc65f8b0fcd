"""Specification of a supervised service: command, readiness probe and stopping."""

import hashlib
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.stack.system.binaries import SystemUser


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLog:
    """Log file of a service, with the offset at which its current process began."""

    path: Path
    offset: int

    def text(self) -> str:
        """Return the output of the current process so far."""
        if not self.path.exists():
            return ""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            return file.read().decode(errors="replace")


Probe = Callable[[ServiceLog], str | None]
"""Returns what is still missing, or None when the service is ready."""


def _at_once(_log: ServiceLog) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """One service: how to start it, when it counts as ready, and how to stop it.

    `needs` names services that must be ready before it starts. A `one_shot` is done when it
    exits with 0, and its failure ends the start. `environment` is added to ours, without the
    variables that are `withheld`. `prepare` runs before every start. All `_s` fields are seconds.
    """

    name: str
    command: tuple[str, ...]
    cwd: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    withheld: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()
    ready: Probe = _at_once
    prepare: Callable[[], object] | None = None
    one_shot: bool = False
    account: SystemUser | None = None
    port: int | None = None
    # Enough for a busy machine: a service that is killed while it starts has to start again.
    start_s: float = 120.0
    stop_s: float = 10.0
    stop_signal: signal.Signals = signal.SIGTERM

    def fingerprint(self) -> str:
        """Hash of the specification; a running process with another hash is replaced."""
        parts: list[object] = [list(self.command), str(self.cwd)]
        parts += [sorted(self.environment.items()), sorted(self.withheld)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
