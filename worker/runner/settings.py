"""A runner's settings, from its environment."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.process.host import TrainerHost
from hillclimb.process.network.addresses import PRIVATE_HOSTS, AllowedHosts
from hillclimb.spec.hosts import OPERATORS_HOSTS, hosts_by_variable
from hillclimb.spec.rules.addresses import Hosts
from worker.runner.errors import RunnerMisconfigured

STOP_TIMEOUT_S = 45.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """`stop_timeout_s`: time for trainers to checkpoint when the runner is stopped (seconds)."""

    api_url: str
    token: str
    name: str
    slots: int
    state_dir: Path
    blobs_url: str
    trainer_python: str
    stop_timeout_s: float
    ready_file: Path | None
    secret_hosts: Hosts = field(default_factory=dict)
    """Hosts to which specs may send the variables `RUN_SECRET_…` of this machine."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RunnerSettings:
        """Read the HILLCLIMB_* variables.

        Raises RunnerMisconfigured with a sentence that names the variable.
        """
        _check_private_hosts(environment)
        state = Path(_required(environment, "HILLCLIMB_STATE_DIR")).resolve()
        ready = environment.get("HILLCLIMB_READY_FILE")
        return cls(
            api_url=_required(environment, "HILLCLIMB_API_URL").rstrip("/"),
            token=_required(environment, "HILLCLIMB_RUNNER_TOKEN"),
            name=environment.get("HILLCLIMB_RUNNER_NAME") or _default_name(),
            slots=int(_number(environment, "HILLCLIMB_RUNNER_SLOTS", 1)),
            state_dir=state,
            blobs_url=environment.get("HILLCLIMB_BLOBS_URL") or str(state / "blobs"),
            trainer_python=_required(environment, "HILLCLIMB_TRAINER_PYTHON"),
            stop_timeout_s=_number(environment, "HILLCLIMB_RUNNER_STOP_TIMEOUT_S", STOP_TIMEOUT_S),
            ready_file=Path(ready) if ready else None,
            secret_hosts=_hosts(environment),
        )

    @property
    def host(self) -> TrainerHost:
        """Directories and interpreter of its trainers."""
        return TrainerHost(
            runs_dir=self.state_dir / "runs",
            own_dir=self.own_dir,
            blobs_url=self.blobs_url,
            trainer_python=self.trainer_python,
        )

    @property
    def own_dir(self) -> Path:
        """Directory of the runner's own files: lock and journal."""
        return self.state_dir / "runner"


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise RunnerMisconfigured(f"the runner needs the environment variable {name}")
    return value


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= 86_400:
        raise RunnerMisconfigured(f"{name} must be a number from 1 to 86400, not {text!r}")
    return value


def _hosts(environment: Mapping[str, str]) -> Hosts:
    try:
        return hosts_by_variable(environment.get(OPERATORS_HOSTS, ""))
    except ValueError as error:
        raise RunnerMisconfigured(str(error)) from error


def _check_private_hosts(environment: Mapping[str, str]) -> None:
    """Refuse a setting that no trainer could read, before any is started."""
    try:
        AllowedHosts.parse(environment.get(PRIVATE_HOSTS, ""))
    except ValueError as error:
        raise RunnerMisconfigured(str(error)) from error


def _default_name() -> str:
    """Return the host's name, restricted to the characters that the service accepts."""
    cleaned = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname()).lstrip("._-")
    return (cleaned or "runner")[:63]
