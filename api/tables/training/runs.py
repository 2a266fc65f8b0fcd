"""Runs, their attempts, events and guards, the runners of attempts, and idempotency keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Computed, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base, Created

QUEUE_CLASS = (
    "CASE WHEN spec -> 'backend' ->> 'type' = 'skypilot'"
    " AND spec ->> 'kind' <> 'preview' THEN 'cluster' ELSE 'runner' END"
)


class Run(Created, Base):
    """A run: its spec, status and progress. Only `api.runs.transitions` writes `status`."""

    __tablename__ = "runs"
    __table_args__ = (
        Index("ix_runs_page", "project_id", "created_at", "id"),
        Index("ix_runs_due", "due_at", postgresql_where=text("due_at IS NOT NULL")),
        Index("ix_runs_tags", "tags", postgresql_using="gin"),
        Index("ix_runs_stuck_at", "stuck_at", postgresql_where=text("stuck_at IS NOT NULL")),
        # The order of a queue: recovering runs first (`recovering` sorts after `queued`).
        Index(
            "ix_runs_waiting",
            "project_id",
            "queue_class",
            text("status DESC"),
            "created_at",
            "id",
            # All that the counts of a submission ask of a row: they read the index alone.
            postgresql_where=text("status IN ('queued', 'recovering') AND deleting_at IS NULL"),
        ),
        Index(
            "ix_runs_submitted",
            "project_id",
            "created_at",
            postgresql_where=text("origin IS NULL AND deleting_at IS NULL"),
        ),
        Index("ix_runs_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
        Index(
            "ix_runs_deleting_at", "deleting_at", postgresql_where=text("deleting_at IS NOT NULL")
        ),
    )
    # Nobody asks a new run for its queue class: its INSERT returns no row.
    __mapper_args__ = {"eager_defaults": False}  # noqa: RUF012 (SQLAlchemy reads it)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    status: Mapped[str] = mapped_column(index=True)
    desired_state: Mapped[str]
    """`running`, `paused` or `cancelled`: the state that the user requested."""
    pause_code: Mapped[str | None]
    """ReasonCode of a requested pause or of a guard's stop; null where the trainer's own end is
    the reason."""
    pause_message: Mapped[str | None]
    spec: Mapped[dict[str, Any]]
    """The resolved RunSpec, nulls and defaults included."""
    queue_class: Mapped[str | None] = mapped_column(Computed(QUEUE_CLASS, persisted=True))
    """`runner` or `cluster`, which the database computes from the spec: the same as
    `api.runs.queue_class.queue_class_of`."""
    config_hash: Mapped[str]
    code: Mapped[dict[str, Any] | None]
    """`hillclimb.process.code_revision.CodeRevision` of the service at submission; null in runs
    stored before."""
    created_by: Mapped[str]
    tags: Mapped[list[str]] = mapped_column(default=list, server_default="[]")
    """Sorted; the spec's at first, then as `api.admission.annotations` changes them."""
    links: Mapped[dict[str, str]] = mapped_column(default=dict, server_default="{}")
    """Addresses by label, such as `pr` or `wandb`."""
    note: Mapped[str | None]
    """Free text of its people."""
    origin: Mapped[dict[str, Any] | None]
    """`hillclimb.protocol.payloads.runs.OriginPayload` of an imported run; null for the service's
    own. Such a run has ended: nothing schedules, resumes or messages about it."""

    end_code: Mapped[str | None]
    """A ReasonCode, set when the run ends or pauses; category and wording derive from it."""
    end_message: Mapped[str | None]

    attempt: Mapped[int] = mapped_column(default=0)
    """Number of the newest attempt; 0 before the first."""
    num_failures: Mapped[int] = mapped_column(default=0)
    """Attempts since the last resume whose end counts as a failure
    (`api.runs.end_reasons.FailureCounting`)."""

    resumed_after: Mapped[int] = mapped_column(default=0, server_default="0")
    """The attempt after which a user last resumed it: clusters lost before do not count."""

    progress_step: Mapped[int] = mapped_column(default=0)
    progress_total: Mapped[int]
    progress_eta_s: Mapped[float | None]
    progress_phase: Mapped[str | None]

    last_seq: Mapped[int] = mapped_column(default=0)
    """`seq` of the newest event; rises under the row lock, without gaps."""

    epoch: Mapped[int] = mapped_column(default=0)
    """Rises with every lease: a write under an older epoch is refused."""
    lease_owner: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    due_at: Mapped[datetime | None]
    """When the sweep checks the run again; null once nothing is left to do."""

    status_since: Mapped[datetime]
    deadline_at: Mapped[datetime | None]
    """Deadline of the current status; null for a status without one."""
    progress_at: Mapped[datetime | None]
    """When the service received the last step, evaluation, checkpoint or start of a trainer."""
    stuck_at: Mapped[datetime | None]
    """When the guard `stuck_progress` trips unless progress is reported before; null while it
    cannot tell, is off, or has tripped."""
    started_at: Mapped[datetime | None]
    """When the first trainer had started."""
    ended_at: Mapped[datetime | None]
    deleting_at: Mapped[datetime | None]
    """When its deletion was requested: from then on no query returns it, but the worker's, which
    deletes what it has (`api.tables.training.deleted`)."""
    trajectories_removed_at: Mapped[datetime | None]
    token_values_removed_at: Mapped[datetime | None]
    metrics_sampled_at: Mapped[datetime | None]
    """When retention removed the files of its rollouts, those of its tokens' values, and all but
    some points of its training metrics (`worker.runs.removal.retention`)."""
    updated_at: Mapped[datetime] = mapped_column(server_default=func.now(), onupdate=func.now())


class Attempt(Base):
    """An attempt to execute a run: scheduled, claimed by a runner, running, ended."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("run_id", "number"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"))
    number: Mapped[int]
    state: Mapped[str] = mapped_column(index=True)
    """`scheduled`, `claimed`, `running` or `ended`."""
    runner_id: Mapped[str | None] = mapped_column(ForeignKey("runners.id"), index=True)
    token_hash: Mapped[str | None] = mapped_column(unique=True)
    """SHA-256 of the ingest token, which is created at the claim."""
    resume_from: Mapped[str | None]
    """Blob key of the checkpoint's directory."""
    from_step: Mapped[int] = mapped_column(default=0)

    scheduled_at: Mapped[datetime]
    claimed_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    last_held_at: Mapped[datetime | None]
    """Last heartbeat that listed the attempt."""
    last_event_at: Mapped[datetime | None]
    last_trainer_seq: Mapped[int] = mapped_column(default=0)
    stop_requested_at: Mapped[datetime | None]
    kill_requested_at: Mapped[datetime | None]

    trainer_code: Mapped[str | None]
    """ReasonCode in the trainer's own last event."""
    trainer_message: Mapped[str | None]
    final_trainer_seq: Mapped[int | None]
    """Number of events that the trainer wrote, by the runner's report."""
    ended_at: Mapped[datetime | None]
    end_code: Mapped[str | None]
    end_message: Mapped[str | None]
    exit_code: Mapped[int | None]


class RunEvent(Base):
    """An event of a run; append-only, ordered by `seq`."""

    __tablename__ = "events"
    __table_args__ = (
        UniqueConstraint("run_id", "attempt", "trainer_seq"),
        Index("ix_events_type", "run_id", "type", "seq"),
    )

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(unique=True)
    type: Mapped[str]
    attempt: Mapped[int | None]
    trainer_seq: Mapped[int | None]
    """The sender's number; null for events of the service itself."""
    at: Mapped[datetime]
    actor: Mapped[str]
    """`key:NAME`, `trainer`, `runner:NAME` or `service`."""
    data: Mapped[dict[str, Any]]
    """The event without its envelope and outcomes, which are in table `outcomes`."""


class GuardTrip(Base):
    """An episode of a guard's condition: from the event `guard.tripped` to `guard.cleared`."""

    __tablename__ = "guard_trips"
    __table_args__ = (
        # One open episode per guard, whatever arrives twice or at once.
        Index(
            "uq_guard_trips_open",
            "run_id",
            "guard",
            unique=True,
            postgresql_where=text("cleared_at IS NULL"),
        ),
    )

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    guard: Mapped[str] = mapped_column(primary_key=True)
    """Its key in `guards` of the spec."""
    number: Mapped[int] = mapped_column(primary_key=True)
    """Position among the guard's episodes, from 1."""
    policy: Mapped[str]
    action: Mapped[str]
    """`alert`, `pause` or `stop`: less than the policy if another guard had acted before."""
    step: Mapped[int]
    attempt: Mapped[int]
    tripped_at: Mapped[datetime]
    evidence: Mapped[dict[str, Any]]
    """`hillclimb.protocol.payloads.events.GuardEvidence` at that time."""
    cleared_at: Mapped[datetime | None]
    cleared_step: Mapped[int | None]
    acknowledged_at: Mapped[datetime | None]
    acknowledged_by: Mapped[str | None]
    """Who has seen it; null until somebody says so."""


class Runner(Base):
    """A registered runner; it executes runs of the project of its token."""

    __tablename__ = "runners"
    __table_args__ = (UniqueConstraint("project_id", "name"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"))
    name: Mapped[str]
    slots: Mapped[int]
    """Number of trainers at once."""
    hostname: Mapped[str]
    identity_hash: Mapped[str | None]
    """SHA-256 of the token that the runner keeps in its state directory; null for one without."""
    draining: Mapped[bool]
    """True while it stops: it claims no attempts."""
    lease_until: Mapped[datetime]
    registered_at: Mapped[datetime]


class IdempotencyKey(Created, Base):
    """A POST with its response: the same key gets the same response."""

    __tablename__ = "idempotency_keys"

    project_id: Mapped[str] = mapped_column(ForeignKey("projects.id"), primary_key=True)
    method: Mapped[str] = mapped_column(primary_key=True)
    path: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    body_hash: Mapped[str]
    status: Mapped[int | None]
    """Null only inside the transaction that creates the response."""
    response: Mapped[dict[str, Any] | None]
