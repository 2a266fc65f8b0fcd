"""Launch plan of an attempt, and the messages between runner (or node) and service."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import ConfigDict, Field, field_validator, model_validator

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.spec.documented import Documented
from hillclimb.spec.rules.version_skew import KeyPath, without_unknown_defaults
from hillclimb.spec.run import RunSpec
from hillclimb.spec.section import WHOLE

_Count = Annotated[int, Field(strict=True), WHOLE]
_Truth = Annotated[bool, Field(strict=True)]


class WireMessage(Documented):
    """A message between processes that may be of different versions: unknown fields are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class LaunchPlan(WireMessage):
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
    at_default: tuple[KeyPath, ...] = ()
    """Keys of `spec` that have the defaults of the service's version: a runner that does not know
    one of them leaves it out. Any other key that it does not know, it refuses."""

    @model_validator(mode="before")
    @classmethod
    def _leave_out(cls, plan: Any) -> Any:  # noqa: ANN401 (before validation)
        if isinstance(plan, dict) and isinstance(spec := plan.get("spec"), dict):
            known = without_unknown_defaults(spec, plan.get("at_default"), model=RunSpec)
            return plan | {"spec": known}
        return plan


class NodePlan(LaunchPlan):
    """Launch plan for a cluster's first node, returned for its bootstrap token."""


class BootstrapClaim(WireMessage):
    """A node's claim of its attempt, with the bootstrap token."""

    attempt_id: str
    code: str
    """The bootstrap token of the launch; valid once."""
    nonce: Annotated[str, Field(min_length=16, max_length=64)]
    """Nonce of the job, which may repeat its claim; another job may not."""
    rank: Annotated[int, Field(ge=0, strict=True), WHOLE] = 0
    """Rank of the node in the job: rank 0 claims the attempt, others receive only secrets."""
    member: Annotated[str, Field(max_length=64)] = ""
    """Nonce of a further node's process, which may repeat its claim; others of its rank may not."""


RUNNER_IDENTITY = "Hillclimb-Runner-Identity"
"""Header of all requests of a runner: a random token of its own, by which it is known again. Older
runners send none, and older services do not read it."""


class RegisterRunner(WireMessage):
    """Registration of a runner; the same name replaces its former registration."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    slots: Annotated[int, Field(ge=1, le=64, strict=True), WHOLE] = 1
    """Concurrent trainers (count)."""
    hostname: str
    attempts: tuple[str, ...] = ()
    """Ids of attempts whose trainers it still runs (after a restart)."""


class RegisteredRunner(WireMessage):
    """The runner's id, heartbeat interval and lease."""

    runner_id: str
    heartbeat_interval_s: float
    lease_s: float


class Heartbeat(WireMessage):
    """Heartbeat of a runner, with the attempts that it currently runs."""

    attempts: tuple[str, ...]
    draining: _Truth = False
    """True while it shuts down and claims no new attempts."""


class RunFolders(WireMessage):
    """Runs of which a runner has a folder, and, in the reply, those of them that were deleted."""

    run_ids: Annotated[tuple[Annotated[str, Field(max_length=60)], ...], Field(max_length=500)]


Action = Literal["stop", "kill"]
"""`stop`: checkpoint and exit (SIGTERM); `kill`: immediately (superseded or past its deadline)."""
ACTIONS = get_args(Action)


class RunnerCommand(WireMessage):
    """Command of the service about an attempt that the runner runs."""

    attempt_id: str
    action: Action
    """`stop`: checkpoint and exit (SIGTERM); `kill`: at once (superseded or past its deadline)."""


class HeartbeatReply(WireMessage):
    """Commands for the runner; repeated until the attempt's end is reported."""

    commands: tuple[RunnerCommand, ...]
    lease_until: datetime
    heartbeat_interval_s: float | None = None
    """Until the next heartbeat: longer where the project has many runners. Null: an older service,
    and what the registration said."""
    has_work: _Truth | None = None
    """True where an attempt waits to be claimed. Null: an older service, to which the runner sends
    claims at a pace of its own."""

    @field_validator("commands", mode="before")
    @classmethod
    def _leave_out(cls, commands: Any) -> Any:  # noqa: ANN401 (before validation)
        """Leave out commands of a newer service."""
        if not isinstance(commands, list):
            return commands
        return [c for c in commands if not isinstance(c, dict) or c.get("action") in ACTIONS]


class NodeBeat(WireMessage):
    """Heartbeat of a cluster's first node."""

    is_preparing: _Truth = False
    """True while the nodes assemble and are tested, before the trainer's start is due."""


class NodeReply(WireMessage):
    """Command for the trainer of a cluster's first node; repeated until its end is reported."""

    action: Action | None

    @field_validator("action", mode="before")
    @classmethod
    def _leave_out(cls, action: object) -> object:
        """Ignore a command of a newer service."""
        return action if action in ACTIONS or not isinstance(action, str) else None


class EndReport(WireMessage):
    """Report of a trainer's exit by its runner or node."""

    reason: ReasonCode
    message: str
    exit_code: _Count | None = None
    """Null if the process was not a child of this runner."""
    last_trainer_seq: _Count | None = None
    """From `exit.json`, or counted in `events.jsonl` for a trainer that was killed."""
