"""Results that ingest derives from a run's events: metrics, outcomes, evals, checkpoints.

All are keyed by attempt; a read returns the highest attempt per step.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from api.tables.base import Base


class Metric(Base):
    """A metric value of one step. `decoding` is `train`, or the eval's decoding.

    No foreign key leads to its run: the database would look that up again for each of a batch's
    thousand rows. Whoever writes or deletes them has locked the run.
    """

    __tablename__ = "metrics"

    run_id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    decoding: Mapped[str] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    value: Mapped[float]


class OutcomeRecord(Base):
    """One rollout: `hillclimb.protocol.outcomes.OutcomeRow` with its run, attempt and step.

    No foreign key leads to its run, as in `Metric`.
    """

    __tablename__ = "outcomes"
    __table_args__ = (
        Index("ix_outcomes_step", "run_id", "split", "decoding", "step", "attempt"),
        Index("ix_outcomes_env", "run_id", "env_key", "split", "decoding", "step"),
        Index("ix_outcomes_page", "run_id", "step"),
        Index("ix_outcomes_task", "run_id", "task_key", "step"),
    )

    run_id: Mapped[str] = mapped_column(primary_key=True)
    rollout_id: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int]
    step: Mapped[int]
    split: Mapped[str]
    decoding: Mapped[str]
    task_key: Mapped[str]
    env_key: Mapped[str]
    template: Mapped[str]
    held_out_template: Mapped[bool]
    difficulty: Mapped[int | None]
    modality: Mapped[str | None]
    sample_index: Mapped[int]
    status: Mapped[str]
    score: Mapped[float | None]
    reason: Mapped[str | None]
    detail: Mapped[str | None]
    verifier_execution_id: Mapped[str | None]
    stop_reason: Mapped[str]
    num_turns: Mapped[int]
    num_tool_calls: Mapped[int]
    num_tool_errors: Mapped[int]
    tool_errors: Mapped[dict[str, Any] | None]
    patterns: Mapped[list[Any] | None] = mapped_column(JSONB)
    patterns_version: Mapped[int | None]
    num_repeated_calls: Mapped[int]
    num_tokens: Mapped[int]
    num_thinking_tokens: Mapped[int | None]
    first_weight_version: Mapped[int | None]
    last_weight_version: Mapped[int | None]
    num_infra_retries: Mapped[int]
    duration_s: Mapped[float]
    reset_s: Mapped[float | None]
    call_s: Mapped[float | None]
    verification_s: Mapped[float | None]
    trajectory: Mapped[str]
    """Blob key relative to the attempt's prefix."""
    trajectory_line: Mapped[int]


class RescoredOutcome(Base):
    """The grade of a stored rollout by another version of its verifier, beside its outcome."""

    __tablename__ = "rescored_outcomes"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    verifier: Mapped[str] = mapped_column(primary_key=True)
    """Version of the verifier."""
    rollout_id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]
    score: Mapped[float | None]
    reason: Mapped[str | None]
    rescored_at: Mapped[datetime]


class PatternSearch(Base):
    """The failure patterns of a stored rollout by other detectors, beside its outcome."""

    __tablename__ = "pattern_searches"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True)
    """Version of the detectors."""
    rollout_id: Mapped[str] = mapped_column(primary_key=True)
    patterns: Mapped[list[Any]] = mapped_column(JSONB)
    searched_at: Mapped[datetime]


class StepSignalRecord(Base):
    """`hillclimb.stats.signal_report.StepSignal` of a training step and an environment."""

    __tablename__ = "step_signals"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    env_key: Mapped[str] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    num_rollouts: Mapped[int]
    num_graded: Mapped[int]
    num_groups: Mapped[int]
    num_mixed: Mapped[int]
    num_all_zero: Mapped[int]
    num_all_one: Mapped[int]
    score_sum: Mapped[float]
    variance_sum: Mapped[float]


class Eval(Base):
    """One evaluation; its percentages are computed from its outcomes."""

    __tablename__ = "evals"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    decoding: Mapped[str] = mapped_column(primary_key=True)
    temperature: Mapped[float]
    n_samples_per_prompt: Mapped[int]
    pass_threshold: Mapped[float]
    duration_s: Mapped[float]
    at: Mapped[datetime]
    stopped_early: Mapped[dict[str, Any] | None]
    """`hillclimb.protocol.events.EarlyStop`; null for a complete evaluation."""
    counts: Mapped[list[Any] | None] = mapped_column(JSONB, deferred=True)
    """Of each task, what `api.results.evals.store.COUNTS` names, by `pass_threshold`; null where
    they are counted from the outcomes at each read, as those of evaluations before 1032 are."""


class ComputeRecord(Base):
    """The ledger of compute: `hillclimb.protocol.events.ComputeSpent` of a step or evaluation."""

    __tablename__ = "compute_ledger"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    """`train` or `eval`."""
    decoding: Mapped[str] = mapped_column(primary_key=True)
    """`train`, or the eval's; empty for an evaluation that the end of the attempt interrupted."""
    is_complete: Mapped[bool]
    """False if the end of the attempt interrupted it."""
    num_rollouts: Mapped[int]
    num_learned: Mapped[int]
    num_resampled: Mapped[int]
    num_ungraded: Mapped[int]
    num_lost_tries: Mapped[int]
    num_sampled_tokens: Mapped[int] = mapped_column(BigInteger)
    num_prefill_tokens: Mapped[int] = mapped_column(BigInteger)
    num_cached_tokens: Mapped[int] = mapped_column(BigInteger)
    num_trained_tokens: Mapped[int] = mapped_column(BigInteger)
    rollout_flops: Mapped[float | None]
    train_flops: Mapped[float | None]


QUALIFIED, REFUSED = "qualified", "refused"
"""Results of a checkpoint's trial."""


class Checkpoint(Base):
    """A complete checkpoint: its manifest is in the blob store."""

    __tablename__ = "checkpoints"

    run_id: Mapped[str] = mapped_column(ForeignKey("runs.id"), primary_key=True)
    step: Mapped[int] = mapped_column(primary_key=True)
    attempt: Mapped[int] = mapped_column(primary_key=True)
    path: Mapped[str]
    """Relative to the run: `checkpoints/global_step_N/attempt-A`."""
    manifest_sha256: Mapped[str]
    size_bytes: Mapped[int] = mapped_column(BigInteger)
    final: Mapped[bool]
    saved_at: Mapped[datetime]
    qualification: Mapped[str | None]
    """`qualified` or `refused`; None without a trial, or before its end."""
    refusal: Mapped[str | None]
    """Reason for which it is refused."""
    deleted_at: Mapped[datetime | None]
