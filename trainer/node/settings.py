"""What a node is told by its environment: `worker/clusters/plans.py` writes it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.handover.place import Place
from trainer.node.errors import NodeMisconfigured
from trainer.node.gang import Gang

DEFAULT_HOME = "~/hillclimb"
STOP_TIMEOUT_S = 840.0
"""A large model's checkpoint takes minutes to get into the store."""
RAY_PORTS = range(6400, 8200, 4)
"""Of gangs' Ray heads; the two after each are taken too, for Ray's clients and the roll call.
SkyPilot's own Ray has 6380, and 8266 for its dashboard; Ray gives 10002 to 19999 to workers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One machine's part of one attempt."""

    api_url: str
    """Empty: this machine cannot reach the API."""
    blobs_url: str
    run_id: str
    attempt: int
    attempt_id: str
    code: str = field(repr=False)
    gang: Gang
    home: Path
    stop_timeout_s: float
    """How long the trainer may checkpoint once it is asked to stop."""
    gather_s: float
    """How long the machines wait for each other."""
    exchange_s: float
    """How long the service is asked for the plan."""
    report_s: float
    """How long the end is told to a service that does not answer."""
    ray_port: int
    trainer_python: str
    num_cpus: int | None
    """That Ray gives away here; None: as many as there are."""
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
            exchange_s=_number(environ, "HILLCLIMB_NODE_EXCHANGE_S", 600.0),
            report_s=_number(environ, "HILLCLIMB_NODE_REPORT_S", 300.0),
            ray_port=int(_number(environ, "HILLCLIMB_RAY_PORT", _ray_port(environ))),
            trainer_python=environ.get("HILLCLIMB_TRAINER_PYTHON") or sys.executable,
            num_cpus=int(_number(environ, "HILLCLIMB_NODE_CPUS", None)) if cpus else None,
            min_disk_gb=_number(environ, "HILLCLIMB_NODE_MIN_DISK_GB", 10.0),
            min_memory_gb=_number(environ, "HILLCLIMB_NODE_MIN_MEMORY_GB", 4.0),
        )

    @property
    def rollcall_port(self) -> int:
        """Where the first machine is called by the others."""
        return self.ray_port + 2

    def dir_of(self, rank: int) -> Path:
        """The own files of a machine, as it has them in its home."""
        return self.home / "node" / f"{self.attempt_id}-{rank}"

    @property
    def own_dir(self) -> Path:
        """This process's own files; machines may share their home."""
        return self.dir_of(self.gang.rank)

    @property
    def place(self) -> Place:
        """Where the trainer lives."""
        return Place(
            runs_dir=self.home / "runs",
            own_dir=self.own_dir,
            blobs_url=self.blobs_url,
            trainer_python=self.trainer_python,
            holder="node",
        )


def _ray_port(environ: Mapping[str, str]) -> int:
    """The same on all machines of a gang; another gang on one of them most likely has another."""
    digest = hashlib.sha256(environ.get("HILLCLIMB_ATTEMPT_ID", "").encode()).digest()
    return RAY_PORTS[int.from_bytes(digest[:4], "big") % len(RAY_PORTS)]


def _code(environ: Mapping[str, str], *, is_needed: bool) -> str:
    """The gang's own secret: it buys the token, and Ray's is made of it."""
    name = "HILLCLIMB_EXCHANGE_CODE"
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
