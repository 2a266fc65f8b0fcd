"""What a trainer says about itself: one union, discriminated on `type`, versioned.

The trainer numbers its events from 1 per attempt (`trainer_seq`) and writes them to
`events.jsonl` first; ingest takes the same objects, accepts `EVENT_SCHEMA` and the version
before it, and is idempotent on (run, attempt, trainer_seq).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from trainer.contract.health import EnvHealth
from trainer.contract.outcomes import OutcomeRow
from trainer.contract.prompts import EnvPrompts
from trainer.contract.reasons import ReasonCode
from trainer.contract.validation import TeacherUse, ValidationSummary

EVENT_SCHEMA = 1
ACCEPTED_SCHEMAS = (EVENT_SCHEMA, EVENT_SCHEMA - 1)


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    schema_version: int = EVENT_SCHEMA
    """Version of the event schema the sender speaks."""
    trainer_seq: Annotated[int, Field(ge=1)]
    """Position in the attempt's events, without gaps."""
    at: datetime
    """When it happened (UTC)."""
    step: Annotated[int, Field(ge=0)]
    """Global step it belongs to; 0 is before the first update."""


class TrainerStarted(_Event):
    """The trainer is up: model loaded, tasks loaded, about to work."""

    type: Literal["trainer.started"] = "trainer.started"
    total_steps: int
    resumed_from_step: int | None = None
    """Step of the checkpoint it goes on from; null for a fresh start."""
    config_hash: str
    """SHA-256 of the resolved spec."""
    prompt_version: str
    engine: str
    num_parameters: int
    num_train_tasks: int
    num_eval_tasks: int
    versions: dict[str, str]
    """Versions of python, torch and transformers."""


class PhaseStarted(_Event):
    """The trainer entered a phase; the dashboard and `watch` show it."""

    type: Literal["phase.started"] = "phase.started"
    phase: Literal["eval", "rollout", "train", "sync", "checkpoint", "validate", "prompts"]
    decoding: str | None = None
    num_rollouts: int | None = None
    """Rollouts of the phase; where tasks are validated or prompts counted, tasks that are left."""


class StepCompleted(_Event):
    """One training step: its metrics (names as in SkyRL/Fleet) and its rollouts."""

    type: Literal["step.completed"] = "step.completed"
    metrics: dict[str, float]
    outcomes: tuple[OutcomeRow, ...]
    eta_s: float | None = None
    """Estimated seconds to the end of training."""


class EvalCompleted(_Event):
    """One evaluation under one decoding; every percentage is computed from its rows."""

    type: Literal["eval.completed"] = "eval.completed"
    decoding: str
    temperature: float
    n_samples_per_prompt: int
    pass_threshold: float
    metrics: dict[str, float]
    outcomes: tuple[OutcomeRow, ...]
    duration_s: float


class ProbeCompleted(_Event):
    """What a run of kind `probe` found; its figures are computed from its rows.

    `step` is that of the checkpoint that was probed, 0 for the starting policy.
    """

    type: Literal["probe.completed"] = "probe.completed"
    complete: bool
    """False when it was stopped before every rollout had ended; the others then have rows too, as
    not started."""
    n_samples_per_prompt: int
    """Rollouts per task."""
    group_size: int
    """Rollouts per prompt that training would take."""
    pass_threshold: float
    temperatures: dict[str, float]
    """Of the rollouts, by environment."""
    environments: dict[str, EnvHealth]
    outcomes: tuple[OutcomeRow, ...]
    duration_s: float


class ValidationCompleted(_Event):
    """What a run of kind `validate` found; the rows, one per task, are in the blob store."""

    type: Literal["validation.completed"] = "validation.completed"
    complete: bool
    """False when it was stopped before every task was checked; the others are unknown."""
    rows: str
    """Key of the rows' file, relative to the attempt."""
    summary: ValidationSummary
    teacher: TeacherUse | None = None
    duration_s: float


class CheckpointSaved(_Event):
    """A checkpoint whose manifest is in place."""

    type: Literal["checkpoint.saved"] = "checkpoint.saved"
    path: str
    """Key prefix in the blob store, relative to the run: `checkpoints/global_step_N/attempt-A`."""
    manifest_sha256: str
    size_bytes: int
    final: bool = False


class CheckpointDeleted(_Event):
    """A checkpoint removed by retention."""

    type: Literal["checkpoint.deleted"] = "checkpoint.deleted"
    path: str


class PromptsRendered(_Event):
    """What the agents read before their first turn, in every environment of the run."""

    type: Literal["prompts.rendered"] = "prompts.rendered"
    version: str
    """Version of the wording; `digest` of each environment covers the rest."""
    max_input_length: int
    """`rollout.max_input_length` (tokens)."""
    environments: dict[str, EnvPrompts]
    file: str
    """Blob key relative to the run of the prompts kept in full: `attempt-1/prompts.jsonl.gz`."""


class EnvDegraded(_Event):
    """An environment failed for a noticeable share of a step's rollouts.

    Of those that were begun; an infra error counts although another try went well, and so does a
    verifier that gives no score.
    """

    type: Literal["env.degraded"] = "env.degraded"
    env_key: str
    infra_error_rate: float
    reasons: dict[str, int]
    """Count per error code; `no_score` for a verifier that gave none."""


class CurriculumReweighted(_Event):
    """The curriculum changed how the prompts are shared out; shares are in [0, 1] and sum to 1."""

    type: Literal["curriculum.reweighted"] = "curriculum.reweighted"
    old_shares: dict[str, float]
    """Share of the prompts per environment until now, of those that no minimum takes."""
    new_shares: dict[str, float]
    """The same from the next step drawn."""
    signals: dict[str, float | None]
    """Share of recent groups whose scores differ, per environment; null where there were none."""
    reason: str
    """Which share changed most, and what was measured there."""


class RunWarning(_Event):
    """Something a user should know that does not stop the run."""

    type: Literal["run.warning"] = "run.warning"
    code: str
    message: str


class TrainerEnded(_Event):
    """The last event of an attempt."""

    type: Literal["trainer.ended"] = "trainer.ended"
    reason: ReasonCode
    message: str
    training_seconds: float
    """Wall-clock seconds spent in training steps (rollouts, updates, syncs), without evaluations
    and checkpoints, over this attempt."""
    eval_seconds: float = 0.0
    """Wall-clock seconds spent in evaluations."""


Event: TypeAlias = (
    TrainerStarted
    | PhaseStarted
    | StepCompleted
    | EvalCompleted
    | ProbeCompleted
    | ValidationCompleted
    | CheckpointSaved
    | CheckpointDeleted
    | PromptsRendered
    | EnvDegraded
    | CurriculumReweighted
    | RunWarning
    | TrainerEnded
)

EVENTS: TypeAdapter[Event] = TypeAdapter(Annotated[Event, Field(discriminator="type")])
"""Validates one event from JSON or python values."""


class IngestBatch(BaseModel):
    """The body of `POST /v1/ingest`: events of one attempt, in order of `trainer_seq`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: Annotated[
        tuple[Annotated[Event, Field(discriminator="type")], ...], Field(max_length=500)
    ]


class IngestReply(BaseModel):
    """How far the service has the attempt's events: the sender goes on from there."""

    model_config = ConfigDict(frozen=True)

    accepted: int
    last_trainer_seq: int
