"""How an attempt is started, and what a runner and the service say to each other about it."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from trainer.contract.reasons import ReasonCode
from trainer.contract.spec import RunSpec

OLD_KINDS = ("train", "eval")
"""What the first runners carried out, which did not name their kinds."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LaunchPlan(_Wire):
    """All that is needed to start one attempt anywhere; the same for a runner and a cluster."""

    run_id: str
    attempt: Annotated[int, Field(ge=1)]
    attempt_id: str
    attempt_token: str
    """Bearer token for ingest; dies with the attempt."""
    ingest_url: str
    """Absolute URL of `POST /v1/ingest`, or empty when the nodes cannot reach the API."""
    spec: RunSpec
    resume_from: str | None = None
    """Blob key of a complete checkpoint (its directory), or null for a fresh start."""
    command: tuple[str, ...] = ("-m", "trainer", "run")
    """Arguments for the data plane's Python; the launcher adds paths."""


class NodePlan(LaunchPlan):
    """What a cluster's first node gets for its code."""

    secrets: Annotated[dict[str, str], Field(repr=False)] = {}
    """Variables of the trainer's environment; shown only here, and never again."""


class ExchangeCode(_Wire):
    """A cluster's first node asks for what it is to do."""

    attempt_id: str
    code: str
    """Came with the launch; good once."""
    nonce: Annotated[str, Field(min_length=16, max_length=64)]
    """The job's: it may repeat its question, another job may not."""
    rank: Annotated[int, Field(ge=0)] = 0
    """Which of the job's nodes asks: the first one takes the attempt, others get secrets alone."""
    member: Annotated[str, Field(max_length=64)] = ""
    """Made by a further node's process: it may repeat its question, no other of its rank may."""


class RegisterRunner(_Wire):
    """A runner introduces itself; the same name takes over its former registration."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
    slots: Annotated[int, Field(ge=1, le=64)] = 1
    """Trainers it runs at once."""
    kinds: Annotated[
        tuple[Annotated[str, Field(pattern=r"^[a-z]{1,32}$")], ...],
        Field(min_length=1, max_length=64),
    ] = OLD_KINDS
    """Kinds of runs it carries out; it is given no other. A runner of a version that did not say
    is taken to know those of that time."""
    hostname: str
    attempts: tuple[str, ...] = ()
    """Ids of attempts whose trainers it still holds (after a restart)."""


class RegisteredRunner(_Wire):
    """The runner's id and how often it must be heard."""

    runner_id: str
    heartbeat_interval_s: float
    lease_s: float


class Heartbeat(_Wire):
    """What the runner holds right now."""

    attempts: tuple[str, ...]
    draining: bool = False
    """True when it stops and takes no new attempts."""


Action = Literal["stop", "kill"]
"""`stop`: checkpoint and leave (SIGTERM); `kill`: at once (superseded or past its deadline)."""


class RunnerCommand(_Wire):
    """What the service wants done with an attempt the runner holds."""

    attempt_id: str
    action: Action
    """`stop`: checkpoint and leave (SIGTERM); `kill`: at once (superseded or past its deadline)."""


class HeartbeatReply(_Wire):
    """Commands for the runner; repeated until the attempt's end is reported."""

    commands: tuple[RunnerCommand, ...]
    lease_until: datetime


class NodeBeat(_Wire):
    """A cluster's first node lives."""

    is_preparing: bool = False
    """The nodes gather and are tested: the trainer is not late yet."""


class NodeReply(_Wire):
    """What a cluster's first node is to do with its trainer; repeated until the end is reported."""

    action: Action | None


class AttemptEnd(_Wire):
    """The report, by who held it, that a trainer is gone."""

    reason: ReasonCode
    message: str
    exit_code: int | None = None
    """Null when the process was not a child of this runner."""
    last_trainer_seq: int | None = None
    """From `exit.json`, or counted in `events.jsonl` for a trainer that was killed."""
