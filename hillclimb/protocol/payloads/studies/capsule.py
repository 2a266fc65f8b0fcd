"""A capsule: one zip with all that says how a run came about, and the rows of its figures.

`capsule.json`, its last member, is the manifest: it has the SHA-256 of every other member.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from hillclimb.protocol.payloads.base import Payload

CAPSULE_SCHEMA = 1
"""Version of the format; a reader refuses newer ones."""
MANIFEST = "capsule.json"
SPEC = "spec.json"
"""The resolved spec, as it is stored."""
EVENTS = "events.jsonl"
"""Every event, in order of `seq`."""
EVALS = "evals.json"
"""Every evaluation: step, attempt, decoding, temperature, rollouts per task, pass threshold."""
OUTCOMES = "outcomes.jsonl"
"""Every rollout's outcome with its attempt and step, by step and id."""
VERSION = "dataset/version.json"
"""The dataset version in full, as `GET /v1/datasets/{name}/versions/{number}` describes it."""
TASKS = "dataset/tasks.jsonl.gz"
"""Its rows; only with `tasks=true`."""
SPLIT = "dataset/split.jsonl.gz"
"""Its split table; only with `tasks=true`."""
REQUIRED = (SPEC, EVENTS, EVALS, OUTCOMES)
OPTIONAL = (VERSION, TASKS, SPLIT)


class CodePayload(Payload):
    """The code of the service that the run was submitted to."""

    package_version: str
    revision: str | None
    """Commit hash, with `-dirty` if tracked files differed from it; null where it was not known."""
    source_digest: str
    """SHA-256 over path and content of every Python file of the core and the trainer."""
    locks: dict[str, str]
    """SHA-256 of each lock file, by name."""


class CapsuleTrainer(Payload):
    """The trainer of one attempt, as it reported itself at its start."""

    attempt: int
    config_hash: str
    engine: str
    prompt_version: str
    resumed_from_step: int | None
    versions: dict[str, str]
    """Versions of python, torch, transformers and hillclimb, and its code."""


class CapsuleDataset(Payload):
    """The dataset version of the run."""

    name: str
    version: int
    id: str
    digest: str
    """SHA-256 of rows and split: the version's identity on every installation."""
    num_tasks: int
    num_train: int
    num_eval: int


class CapsuleMachine(Payload):
    """Machines of a cluster or of a launch try, without account, cluster name or address."""

    cloud: str | None
    region: str | None
    """Null on clusters of one's own, where it is the name of one."""
    sku: str | None
    hourly_usd: float | None


class CapsuleLaunchTry(CapsuleMachine):
    """One try to rent machines."""

    launch: int
    seconds: float | None
    outcome: str
    error_class: str | None


class CapsuleCluster(CapsuleMachine):
    """The cluster that was rented for an attempt."""

    state: str
    cause: str | None
    num_nodes: int
    billed_from: datetime | None
    running_at: datetime | None
    terminated_at: datetime | None
    tries: list[CapsuleLaunchTry]


class CapsuleAttempt(Payload):
    """One attempt and why it ended."""

    number: int
    state: str
    from_step: int
    scheduled_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    end_code: str | None
    exit_code: int | None
    cluster: CapsuleCluster | None
    """Null for an attempt on a runner."""


class CapsuleMember(Payload):
    """One member of the zip."""

    sha256: str
    size_bytes: int


class CapsuleManifest(Payload):
    """The manifest of a capsule (`capsule.json`)."""

    object: Literal["capsule"] = "capsule"
    schema_version: int = CAPSULE_SCHEMA
    run_id: str
    name: str
    status: str
    end_code: str | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    config_hash: str
    last_seq: int
    """`seq` of the last event in the capsule."""
    code: CodePayload | None
    """Null for runs that an older service stored."""
    trainers: list[CapsuleTrainer]
    seeds: dict[str, int]
    """Every seed of the spec, by its dotted key."""
    dataset: CapsuleDataset | None
    """Null where the environment generates the tasks."""
    candidates: list[dict[str, Any]]
    """Machines that the spec accepts; empty for a run on a runner."""
    attempts: list[CapsuleAttempt]
    members: dict[str, CapsuleMember] = Field(default_factory=dict)
    """Every other member, by name."""
