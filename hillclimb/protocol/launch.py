"""Launch plan of an attempt, and the messages between runner (or node) and service."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.documented import Documented
from hillclimb.spec.run import RunSpec

_Count = Annotated[int, Field(strict=True)]
_Truth = Annotated[bool, Field(strict=True)]


class _Wire(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LaunchPlan(_Wire):
    """Everything needed to start an attempt; the same for a runner and a cluster."""

    run_id: str
    attempt: Annotated[int, Field(ge=1)]
    attempt_id: str
    attempt_token: str
    """Bearer token for ingest; valid until the attempt ends."""
    ingest_url: str
    """Absolute URL of `POST /v1/ingest`, or empty if the nodes cannot reach the API."""
    spec: RunSpec
    resume_from: str | None = None
    """Blob key of a complete checkpoint (its directory), or null for a fresh start."""
    manifests: dict[str, str] | None = None
    """SHA-256 (hex) of the manifest of each checkpoint that the attempt may open, by blob key, as
    the service's database has it. Null: a service that does not tell, and nothing is compared."""
    command: tuple[str, ...] = ("-m", "trainer", "run")
    """Arguments for the data plane's Python; the launcher adds paths."""
    secrets: dict[str, str] = Field(default_factory=dict, repr=False)
    """Variables of the trainer's environment: the secrets that the spec names, on a rented cluster
    the operator's too. No other response contains them."""
    traceparent: str | None = None
    """Trace context of the attempt (W3C); null where the service does not trace."""


class NodePlan(LaunchPlan):
    """Launch plan for a cluster's first node, returned for its bootstrap token."""


class BootstrapClaim(_Wire):
    """A node's claim of its attempt, with the bootstrap token."""

    attempt_id: str
    code: str
    """The bootstrap token of the launch; valid once."""
    nonce: Annotated[str, Field(min_length=16, max_length=64)]
    """Nonce of the job, which may repeat its claim; another job may not."""
    rank: Annotated[_Count, Field(ge=0)] = 0
    """Rank of the node in the job: rank 0 claims the attempt, others receive only secrets."""
    member: Annotated[str, Field(max_length=64)] = ""
    """Nonce of a further node's process, which may repeat its claim; others of its rank may not."""


class RegisterRunner(_Wire):
    """Registration of a runner; the same name replaces its former registration."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    slots: Annotated[_Count, Field(ge=1, le=64)] = 1
    """Concurrent trainers (count)."""
    hostname: str
    attempts: tuple[str, ...] = ()
    """Ids of attempts whose trainers it still runs (after a restart)."""


class RegisteredRunner(_Wire):
    """The runner's id, heartbeat interval and lease."""

    runner_id: str
    heartbeat_interval_s: float
    lease_s: float


class Heartbeat(_Wire):
    """Heartbeat of a runner, with the attempts that it currently runs."""

    attempts: tuple[str, ...]
    draining: _Truth = False
    """True while it shuts down and claims no new attempts."""


Action = Literal["stop", "kill"]
"""`stop`: checkpoint and exit (SIGTERM); `kill`: immediately (superseded or past its deadline)."""


class RunnerCommand(_Wire):
    """Command of the service about an attempt that the runner runs."""

    attempt_id: str
    action: Action
    """`stop`: checkpoint and exit (SIGTERM); `kill`: at once (superseded or past its deadline)."""


class HeartbeatReply(_Wire):
    """Commands for the runner; repeated until the attempt's end is reported."""

    commands: tuple[RunnerCommand, ...]
    lease_until: datetime


class NodeBeat(_Wire):
    """Heartbeat of a cluster's first node."""

    is_preparing: _Truth = False
    """True while the nodes assemble and are tested, before the trainer's start is due."""


class NodeReply(_Wire):
    """Command for the trainer of a cluster's first node; repeated until its end is reported."""

    action: Action | None


class EndReport(_Wire):
    """Report of a trainer's exit by its runner or node."""

    reason: ReasonCode
    message: str
    exit_code: _Count | None = None
    """Null if the process was not a child of this runner."""
    last_trainer_seq: _Count | None = None
    """From `exit.json`, or counted in `events.jsonl` for a trainer that was killed."""
