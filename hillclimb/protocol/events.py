"""Events of the trainer: one versioned union, discriminated on `type`.

The trainer numbers its events from 1 per attempt (`trainer_seq`) and writes them to
`events.jsonl` first; ingest takes the same objects, accepts `EVENT_SCHEMA` and the version
before it, and is idempotent on (run, attempt, trainer_seq).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.environments import EnvHealth, EnvPrompts
from hillclimb.protocol.outcomes import Detail, OutcomeRow
from hillclimb.protocol.validation import TeacherUse, ValidationSummary
from hillclimb.spec.documented import Documented
from hillclimb.spec.section import EARLIEST, StorableTime

EVENT_SCHEMA = 1
ACCEPTED_SCHEMAS = (EVENT_SCHEMA, EVENT_SCHEMA - 1)
EXCERPT_CHARACTERS = 1_000
"""Longest excerpt of a refused event."""
NUMBERING = ("trainer_seq", "at")
"""Fields that the journal sets when it writes an event; a stored event has both."""


def _require_numbering(schema: dict[str, Any]) -> None:
    """Require `type`, `trainer_seq` and `at` in the schema: their defaults are for the journal."""
    required = {*schema.get("required", ()), "type", *NUMBERING}
    for name in ("type", *NUMBERING):
        schema["properties"][name].pop("default", None)
    schema["required"] = [name for name in schema["properties"] if name in required]


class _Event(Documented):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        json_schema_extra=_require_numbering,
    )

    schema_version: int = EVENT_SCHEMA
    """Version of the sender's event schema."""
    trainer_seq: Annotated[int, Field(ge=1)] = 0
    """Position in the attempt's events, without gaps."""
    at: StorableTime = EARLIEST
    """Time of the event (UTC)."""
    step: Annotated[int, Field(ge=0)]
    """Global step of the event; 0 is before the first update."""

    def numbered(self, trainer_seq: int, at: datetime) -> Self:
        """Return the event at its position in the journal."""
        return self.model_copy(update={"trainer_seq": trainer_seq, "at": at})


class ComputeSpent(Documented):
    """Compute spent since the report before, rollouts that nothing was learned from included.

    Tokens are the engines' counters: tries that an infra error ended and rollouts of later steps
    that are under way count when they were computed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_rollouts: Annotated[int, Field(ge=0)] = 0
    """Rollouts made for this step or evaluation."""
    num_learned: Annotated[int, Field(ge=0)] = 0
    """Those of them that the update learned from."""
    num_resampled: Annotated[int, Field(ge=0)] = 0
    """Those replaced by dynamic sampling."""
    num_ungraded: Annotated[int, Field(ge=0)] = 0
    """The others without a grade."""
    num_lost_tries: Annotated[int, Field(ge=0)] = 0
    """Tries that an infra error ended and another try repeated."""
    num_sampled_tokens: Annotated[int, Field(ge=0)] = 0
    """Drawn by the engines."""
    num_prefill_tokens: Annotated[int, Field(ge=0)] = 0
    """Of prompts, computed by the engines."""
    num_cached_tokens: Annotated[int, Field(ge=0)] = 0
    """Of prompts, not computed: they were in an engine's cache."""
    num_trained_tokens: Annotated[int, Field(ge=0)] = 0
    """Of the sequences learned from, prompts included."""
    rollout_flops: Annotated[float, Field(ge=0.0)] | None = None
    """Of the engines' forward passes; null where the model's shape is not known."""
    train_flops: Annotated[float, Field(ge=0.0)] | None = None
    """Of updates and scoring; null where a server does not tell."""

    @property
    def num_rejected(self) -> int:
        """Rollouts that nothing was learned from."""
        return self.num_rollouts - self.num_learned

    @property
    def num_tokens(self) -> int:
        """Tokens that the engines computed: drawn, and of prompts that no cache had."""
        return self.num_sampled_tokens + self.num_prefill_tokens

    @property
    def flops(self) -> float | None:
        """FLOPs of engines and learner; None where a part is not known."""
        if self.rollout_flops is None or self.train_flops is None:
            return None
        return self.rollout_flops + self.train_flops

    def __add__(self, other: ComputeSpent) -> ComputeSpent:
        """Return the sums over both; with an unknown part the FLOPs are unknown."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in COMPUTE_FIELDS}
        sums: dict[str, Any] = {
            name: None if None in pair else sum(pair) for name, pair in pairs.items()
        }
        return ComputeSpent.model_construct(**sums)


COMPUTE_FIELDS = tuple(ComputeSpent.model_fields)
NOTHING_SPENT = ComputeSpent(rollout_flops=0.0, train_flops=0.0)


StartPhase: TypeAlias = Literal[
    "imports",
    "model",
    "tasks",
    "checkpoint",
    "ray",
    "weights",
    "engines",
    "environments",
    "server",
]
"""A phase of a trainer's start: Python libraries are imported; the model's files, the tasks and the
checkpoint to resume from are fetched; Ray starts and places the workers; the learner loads the
weights; the engines (vLLM or torch) load theirs; the rollout workers load tokenizer and
environments; a Tinker server opens a session. With Ray the last ones go on at once."""
START_PHASES: Mapping[str, str] = {
    "imports": "imports its libraries",
    "model": "fetches the model's files",
    "tasks": "loads the tasks",
    "checkpoint": "fetches and checks the checkpoint",
    "ray": "starts Ray",
    "weights": "loads the weights",
    "engines": "starts the engines",
    "environments": "starts the environments",
    "server": "opens a session on the server",
}
"""What the trainer does in each phase, the same in the terminal and on the page."""


def start_line(seconds: Mapping[str, float]) -> str:
    """Return how long each phase took: `imports 6.1 s, ray 3.2 s`; empty without a phase."""
    return ", ".join(f"{name} {took:.1f} s" for name, took in seconds.items())


class PhaseDuration(Documented):
    """Duration of a phase of a trainer's start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    phase: StartPhase
    seconds: Annotated[float, Field(ge=0.0)]


class TrainerStarting(_Event):
    """A phase of the trainer's start has begun or, with its time, has ended."""

    type: Literal["trainer.starting"] = "trainer.starting"
    phase: StartPhase
    seconds: Annotated[float, Field(ge=0.0)] | None = None
    """How long the phase took; null where it begins."""


class TrainerStarted(_Event):
    """The trainer has started: model and tasks are loaded."""

    type: Literal["trainer.started"] = "trainer.started"
    total_steps: int
    resumed_from_step: int | None = None
    """Step of the checkpoint it resumes from; null for a fresh start."""
    config_hash: str
    """SHA-256 of the resolved spec."""
    prompt_version: str
    engine: str
    num_parameters: int
    num_train_tasks: int
    num_eval_tasks: int
    versions: dict[str, str]
    """Versions of python, torch, transformers and hillclimb; `source_digest` and, in a checkout,
    `revision` of the trainer's code."""
    startup: tuple[PhaseDuration, ...] = ()
    """The phases of the start, in the order of their ends; none from a trainer that does not say.
    """


class TrackingStarted(_Event):
    """A copy of the metrics goes to an experiment tracker, or to files for one."""

    type: Literal["tracking.started"] = "tracking.started"
    tracker: Literal["wandb", "mlflow", "tensorboard"]
    name: str
    """Name of the attempt's run there."""
    url: Annotated[str, Field(pattern=r"^https?://[^\s\"'<>]+$", max_length=2000)] | None = None
    """Address of the attempt's run there; null for files."""


class PhaseStarted(_Event):
    """The trainer entered a phase; the dashboard and `watch` show it."""

    type: Literal["phase.started"] = "phase.started"
    phase: Literal["eval", "rollout", "train", "sync", "checkpoint", "validate", "prompts"]
    decoding: str | None = None
    num_rollouts: int | None = None
    """Rollouts of the phase; in validation and preview, the number of remaining tasks."""


class StepCompleted(_Event):
    """One training step: its metrics (names as in SkyRL/Fleet) and its rollouts."""

    type: Literal["step.completed"] = "step.completed"
    metrics: dict[str, float]
    outcomes: tuple[OutcomeRow, ...]
    eta_s: float | None = None
    """Estimated seconds to the end of training."""
    compute: ComputeSpent | None = None
    """Null from a trainer that does not count it."""


class StepAbandoned(_Event):
    """The step, or its evaluation, under way when the attempt ended: its compute is spent."""

    type: Literal["step.abandoned"] = "step.abandoned"
    during: Literal["train", "eval"]
    """Whether it was a training step or the evaluation after one."""
    compute: ComputeSpent


class EarlyStop(Documented):
    """The end of an evaluation before all of its tasks were rolled out, because of its verdict.

    The other tasks are not needed: they have no outcome and count in no coverage.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    cause: Literal["decided", "futile"]
    """`decided`: the verdict stands. `futile`: the remaining tasks would hardly have decided it."""
    verdict: str
    """The word over all tasks at that moment, such as `improved`."""
    decided_at: int
    """Tasks that were complete, the first of the order: those that have outcomes."""
    planned: int
    """Tasks of the complete evaluation."""
    baseline_step: int
    """Step of the evaluation that it was compared with."""
    num_discarded: int
    """Rollouts of later tasks that were in flight or had ended; they have no outcome either."""


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
    compute: ComputeSpent | None = None
    """Null from a trainer that does not count it."""
    stopped_early: EarlyStop | None = None
    """Null for a complete evaluation, and for one that ran out of `eval.budget_minutes`."""


class ProbeCompleted(_Event):
    """Results of a run of kind `probe`; its figures are computed from its rows.

    `step` is that of the probed checkpoint, 0 for the starting policy.
    """

    type: Literal["probe.completed"] = "probe.completed"
    complete: bool
    """False if it was stopped before every rollout had ended; the others then have rows too, as not
    started."""
    n_samples_per_prompt: int
    """Rollouts per task."""
    group_size: int
    """Rollouts per prompt in training (`rollout.n_samples_per_prompt`)."""
    pass_threshold: float
    temperatures: dict[str, float]
    """Sampling temperatures by environment."""
    environments: dict[str, EnvHealth]
    outcomes: tuple[OutcomeRow, ...]
    duration_s: float


class ValidationCompleted(_Event):
    """Results of a run of kind `validate`; the rows, one per task, are in the blob store."""

    type: Literal["validation.completed"] = "validation.completed"
    complete: bool
    """False if it was stopped before every task was checked; the others are unknown."""
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


class CheckpointQualified(_Event):
    """A checkpoint that a fresh process loaded and updated, and whose files stayed the same."""

    type: Literal["checkpoint.qualified"] = "checkpoint.qualified"
    path: str
    duration_s: float
    """From the start of reading it to the end of its trial (seconds)."""


class CheckpointRefused(_Event):
    """A checkpoint that failed its trial or cannot be read: no attempt resumes from it."""

    type: Literal["checkpoint.refused"] = "checkpoint.refused"
    path: str
    reason: str
    """The first thing that was wrong: `damaged: ...`, `not_loaded: ...`, `no_update: ...`."""


class CheckpointDeleted(_Event):
    """A checkpoint removed by retention."""

    type: Literal["checkpoint.deleted"] = "checkpoint.deleted"
    path: str


class PromptsRendered(_Event):
    """Statistics of the rendered prompts in every environment of the run."""

    type: Literal["prompts.rendered"] = "prompts.rendered"
    version: str
    """Version of the prompt wording; the `digest` of each environment covers everything else."""
    max_input_length: int
    """`rollout.max_input_length` (tokens)."""
    environments: dict[str, EnvPrompts]
    file: str
    """Blob key, relative to the run, of the prompts stored in full: `attempt-1/prompts.jsonl.gz`.
    """


class EnvDegraded(_Event):
    """An environment failed for a noticeable share of a step's started rollouts.

    An infra error counts even if a retry succeeded, and so does a verifier that returns no score.
    """

    type: Literal["env.degraded"] = "env.degraded"
    env_key: str
    infra_error_rate: float
    reasons: dict[str, int]
    """Count per error code; `no_score` for a verifier that returned no score."""
    detail: Detail | None = None
    """The most frequent cause in words of the rollouts that have no grade."""


class CurriculumReweighted(_Event):
    """The curriculum changed the distribution of prompts; shares are in [0, 1] and sum to 1."""

    type: Literal["curriculum.reweighted"] = "curriculum.reweighted"
    old_shares: dict[str, float]
    """Share per environment until now, of the prompts beyond the minimum of each."""
    new_shares: dict[str, float]
    """The same from the next sampled step on."""
    signals: dict[str, float | None]
    """Share of recent groups with signal, per environment; null where there were none."""
    reason: str
    """The share that changed most, and its measurement."""


class RunWarning(_Event):
    """A warning to the user that does not stop the run."""

    type: Literal["run.warning"] = "run.warning"
    code: str
    message: str


class EventRefused(_Event):
    """Stands under the number of an event that can never be stored, so that the stream goes on.

    The whole event stays in the attempt's `events.jsonl` and in its segments in the blob store.
    """

    type: Literal["event.refused"] = "event.refused"
    refused_type: Annotated[str, Field(max_length=100)]
    """Type of the event; `unknown` where it cannot be read."""
    message: Detail
    """The sentence that says why it is refused."""
    size_bytes: Annotated[int, Field(ge=0)]
    """Of the whole event, as its sender wrote it."""
    excerpt: Annotated[str, Field(max_length=EXCERPT_CHARACTERS)]
    """The start of the event, as its sender wrote it."""


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
    TrainerStarting
    | TrainerStarted
    | TrackingStarted
    | PhaseStarted
    | StepCompleted
    | StepAbandoned
    | EvalCompleted
    | ProbeCompleted
    | ValidationCompleted
    | CheckpointSaved
    | CheckpointQualified
    | CheckpointRefused
    | CheckpointDeleted
    | PromptsRendered
    | EnvDegraded
    | CurriculumReweighted
    | RunWarning
    | EventRefused
    | TrainerEnded
)


def _check_numbered(event: Event) -> Event:
    missing = [name for name in NUMBERING if name not in event.model_fields_set]
    if missing:
        raise ValueError(f"the event has no {' and no '.join(missing)}")
    return event


NumberedEvent: TypeAlias = Annotated[
    Event, Field(discriminator="type"), AfterValidator(_check_numbered)
]
"""An event as written by the journal."""
EVENTS: TypeAdapter[Event] = TypeAdapter(NumberedEvent)
"""Validates one numbered event from JSON or python values."""


def is_of_newer_schema(parsed: object) -> bool:
    """Return True if parsed JSON is an event of a later version, of which little is known here."""
    version = parsed.get("schema_version") if isinstance(parsed, dict) else None
    return isinstance(version, int) and version > EVENT_SCHEMA


class IngestBatch(BaseModel):
    """The body of `POST /v1/ingest`: events of one attempt, in order of `trainer_seq`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    events: Annotated[tuple[NumberedEvent, ...], Field(max_length=500)]


class IngestReply(BaseModel):
    """The last event that the service has stored: the sender continues after it."""

    model_config = ConfigDict(frozen=True)

    accepted: int
    last_trainer_seq: int
