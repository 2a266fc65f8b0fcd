"""Payloads of runs, attempts and plans."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.costs import OutlookPayload
from hillclimb.protocol.payloads.datasets.versions import PlannedDataset
from hillclimb.protocol.payloads.hardware import HardwarePayload
from hillclimb.protocol.payloads.results.comparison import ConfigDifference
from hillclimb.protocol.payloads.statuses import AttemptState, Category, DesiredState, RunStatus


class EndReasonPayload(Payload):
    """The reason for which a run ended, paused or is recovering."""

    code: str
    category: Category
    retryable: bool
    message: str


OriginKind = Literal["skyrl", "wandb", "capsule"]


class OriginPayload(Payload):
    """The origin of an imported run."""

    kind: OriginKind
    """`skyrl`: dumps of evaluations. `wandb`: the history of a W&B run. `capsule`: a capsule of
    this or another installation."""
    source: str
    """Name of the run where it ran."""
    digest: str
    """SHA-256 over what was imported and the options that change its rows: a repeated import
    returns the run of the first."""
    importer_version: int
    """Version of the code that made the rows."""
    is_schedule_known: bool
    """The last step of `spec.schedule` is that of the plan. False: the last evaluation may have
    been chosen by its figures, and verdicts count it as one of all that were imported."""


class ProgressPayload(Payload):
    """Progress of the trainer."""

    step: int
    total: int
    eta_s: float | None
    phase: str | None


class QueuePayload(Payload):
    """Position of a waiting run in the queue."""

    position: int
    """1 is next, among the runs that wait for the same kind of slot."""
    reason: str | None
    """Reason for waiting; null when it is next."""


class ResultPayload(Payload):
    """pass@1 of the first and the last evaluation of a run under its first decoding, in [0, 1]."""

    decoding: str
    before_step: int
    after_step: int
    before: float | None
    """Null with a single evaluation."""
    after: float | None
    n: int
    """Tasks graded on both sides."""
    verdict: str | None
    """Null with a single evaluation (docs/verdicts.md)."""


class ConclusionPayload(Payload):
    """The line that concludes a training run: CLI, page and Slack print the same."""

    word: str
    """`improved`, `regressed`, `flat`, `inconclusive`, `not_evaluated`, `no_gradient` or
    `no_steps`."""
    sentence: str
    has_learned: bool
    """False if no step could change the policy: the run is no plain success, whatever its status.
    """


class RunSummary(Payload):
    """A run in a list."""

    object: Literal["run"] = "run"
    id: str
    project_id: str
    name: str
    kind: str = "train"
    """As in the spec."""
    status: RunStatus
    desired_state: DesiredState
    end_reason: EndReasonPayload | None
    attempt: int
    """Number of the newest attempt; 0 before the first."""
    num_failures: int
    progress: ProgressPayload
    config_hash: str
    created_by: str
    tags: list[str] = Field(default_factory=list)
    links: dict[str, str] = Field(default_factory=dict)
    """Addresses by label, such as `pr` or `wandb`."""
    note: str | None = None
    """Free text of its people."""
    origin: OriginPayload | None = None
    """Null for a run of this service; else it was imported."""
    result: ResultPayload | None = None
    """Null without an evaluation, and in a list without `results=true`."""
    last_seq: int
    """`seq` of the newest event."""
    status_since: datetime
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class AttemptPayload(Payload):
    """One attempt of a run."""

    id: str
    number: int
    state: AttemptState
    from_step: int
    resume_from: str | None
    last_trainer_seq: int
    scheduled_at: datetime
    claimed_at: datetime | None
    started_at: datetime | None
    last_event_at: datetime | None
    ended_at: datetime | None
    end_code: str | None
    end_message: str | None
    exit_code: int | None


class RemovedPayload(Payload):
    """The times at which retention removed parts of a run; null for a part that is complete."""

    trajectories_removed_at: datetime | None
    """Files of its rollouts: conversations, tokens, times."""
    token_values_removed_at: datetime | None
    """The learner's values of each token."""
    metrics_sampled_at: datetime | None
    """Training metrics, of which at most 1,000 points of each series stayed."""


class RunPayload(RunSummary):
    """A run with its cost, queue position, attempts and spec."""

    cost: OutlookPayload | None
    """Cost so far and forecast; null unless the run has requested a cluster."""
    conclusion: ConclusionPayload | None = None
    """Null unless a run of kind `train` has ended or is paused."""
    queue: QueuePayload | None
    """Null unless the run waits for a slot."""
    attempts: list[AttemptPayload]
    removed: RemovedPayload | None = None
    """Parts that retention has removed; null for a run that is complete."""
    spec: dict[str, Any]
    """The resolved spec."""


class ForkPayload(RunPayload):
    """A new run, forked from another one."""

    config_diff: list[ConfigDifference]
    """Its spec (`b`) against the other run's (`a`), without name and lineage."""


class DeletedRunPayload(Payload):
    """The record of a deleted run."""

    object: Literal["deleted_run"] = "deleted_run"
    id: str
    name: str
    deleted_by: str
    reason: str
    """`request`, `retention` or `project`."""
    created_at: datetime
    """When the deletion was requested; from then on no request reaches the run."""
    completed_at: datetime | None
    """When none of its rows and files was left; null while they are being deleted."""
    num_rows: int
    """Rows deleted so far."""
    num_bytes: int
    """Bytes deleted so far from the blob store."""


class RunList(Payload):
    """One page of runs, newest first."""

    object: Literal["list"] = "list"
    data: list[RunSummary]
    has_more: bool
    next_cursor: str | None = Field(description="Pass it as `cursor` with the same filters.")


class PlanPayload(Payload):
    """The effect of submitting a spec."""

    object: Literal["plan"] = "plan"
    spec: dict[str, Any]
    config_hash: str
    warnings: tuple[str, ...]
    dataset: PlannedDataset | None
    """The version and its tasks per environment; null where tasks are generated."""
    hardware: HardwarePayload | None
    """Machines, arithmetic and costs; null where none are rented."""
    queue: QueuePayload
    from_defaults: tuple[str, ...] = ()
    """Dotted keys of `spec` that the defaults of the project or the operator set."""
