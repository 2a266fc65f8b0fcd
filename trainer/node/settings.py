"""A node's settings, from the environment that `worker/clusters/plans.py` writes."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hillclimb.process.host import TrainerHost
from trainer.node.errors import NodeMisconfigured
from trainer.node.gang import Gang

DEFAULT_HOME = "~/hillclimb"
STOP_TIMEOUT_S = 840.0
"""A large model's checkpoint takes minutes to upload."""
RAY_PORTS = range(6400, 8200, 4)
"""Ports of gangs' Ray heads. The next two ports are used too, by Ray's clients and the rendezvous.
SkyPilot's own Ray uses 6380, and 8266 for its dashboard; Ray's workers use 10002 to 19999."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Settings of one machine's node for one attempt."""

    api_url: str
    """Empty: this machine cannot reach the API."""
    blobs_url: str
    run_id: str
    attempt: int
    attempt_id: str
    code: str = field(repr=False)
    """The gang's bootstrap token."""
    gang: Gang
    home: Path
    stop_timeout_s: float
    """Time for the trainer to checkpoint after a stop request."""
    gather_s: float
    """Time for all machines to join."""
    claim_s: float
    """Time to claim the attempt."""
    report_s: float
    """Time to report the end to a service that does not answer."""
    ray_port: int
    trainer_python: str
    num_cpus: int | None
    """CPUs that Ray schedules on this machine; None: all."""
    min_disk_gb: float
    min_memory_gb: float

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> NodeSettings:
        """Read the HILLCLIMB_* and SKYPILOT_* variables.

        Raises NodeMisconfigured with a sentence that names the variable.
        """
        api_url = environ.get("HILLCLIMB_API_URL", "").rstrip("/")
        gang, cpus = Gang.from_environment(environ), environ.get("HILLCLIMB_NODE_CPUS")
        return cls(
            api_url=api_url,
            blobs_url=_required(environ, "HILLCLIMB_BLOBS_URL"),
            run_id=_required(environ, "HILLCLIMB_RUN_ID"),
            attempt=int(_number(environ, "HILLCLIMB_ATTEMPT", None)),
            attempt_id=_required(environ, "HILLCLIMB_ATTEMPT_ID"),
            code=_code(environ, is_needed=bool(api_url) or not gang.is_alone),
            gang=gang,
            home=Path(environ.get("HILLCLIMB_NODE_HOME") or DEFAULT_HOME).expanduser().resolve(),
            stop_timeout_s=_number(environ, "HILLCLIMB_NODE_STOP_S", STOP_TIMEOUT_S),
            gather_s=_number(environ, "HILLCLIMB_NODE_GATHER_S", 600.0),
            claim_s=_number(environ, "HILLCLIMB_NODE_CLAIM_S", 600.0),
            report_s=_number(environ, "HILLCLIMB_NODE_REPORT_S", 300.0),
            ray_port=int(_number(environ, "HILLCLIMB_RAY_PORT", _ray_port(environ))),
            trainer_python=environ.get("HILLCLIMB_TRAINER_PYTHON") or sys.executable,
            num_cpus=int(_number(environ, "HILLCLIMB_NODE_CPUS", None)) if cpus else None,
            min_disk_gb=_number(environ, "HILLCLIMB_NODE_MIN_DISK_GB", 10.0),
            min_memory_gb=_number(environ, "HILLCLIMB_NODE_MIN_MEMORY_GB", 4.0),
        )

    @property
    def rendezvous_port(self) -> int:
        """Port of the first machine's rendezvous."""
        return self.ray_port + 2

    def dir_of(self, rank: int) -> Path:
        """Directory of a machine's own files, in its home."""
        return self.home / "node" / f"{self.attempt_id}-{rank}"

    @property
    def own_dir(self) -> Path:
        """Directory of this process's own files; machines may share a home."""
        return self.dir_of(self.gang.rank)

    @property
    def host(self) -> TrainerHost:
        """Directories and interpreter of the trainer."""
        return TrainerHost(
            runs_dir=self.home / "runs",
            own_dir=self.own_dir,
            blobs_url=self.blobs_url,
            trainer_python=self.trainer_python,
            holder="node",
        )


def _ray_port(environ: Mapping[str, str]) -> int:
    """Return a port from the attempt's id: equal on a gang's machines, likely not for two gangs."""
    digest = hashlib.sha256(environ.get("HILLCLIMB_ATTEMPT_ID", "").encode()).digest()
    return RAY_PORTS[int.from_bytes(digest[:4], "big") % len(RAY_PORTS)]


def _code(environ: Mapping[str, str], *, is_needed: bool) -> str:
    """Return the bootstrap token: it claims the attempt, and Ray's token is derived from it."""
    name = "HILLCLIMB_BOOTSTRAP_TOKEN"
    return _required(environ, name) if is_needed else environ.get(name, "")


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise NodeMisconfigured(f"the node needs the environment variable {name}")
    return value


def _number(environ: Mapping[str, str], name: str, default: float | None) -> float:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1_000_000:
        raise NodeMisconfigured(f"{name} must be a number from 0 to 1000000, not {text!r}")
    return value
