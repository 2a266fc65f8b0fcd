"""Why an attempt or a run ended: the fact that is stored.

Status, retry and wording derive from it by the table in `api/runs/reasons.py`.
"""

from __future__ import annotations

from enum import StrEnum


class ReasonCode(StrEnum):
    """A closed list; the trainer, the runner and the service each report some of them."""

    COMPLETED = "completed"
    """The trainer finished every step."""
    CANCELLED_BY_USER = "cancelled_by_user"
    """A user asked for it."""
    SPEC_REJECTED = "spec_rejected"
    """The spec cannot be carried out (found only where it runs)."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model's files cannot be read."""
    CHECKPOINT_UNREADABLE = "checkpoint_unreadable"
    """The checkpoint to resume from is missing, torn or does not fit."""
    ENVIRONMENT_OUTAGE = "environment_outage"
    """Too many rollouts ended in infra errors; the run pauses with a checkpoint."""
    STEP_TIMEOUT = "step_timeout"
    """A step passed its deadline; the run pauses and says which phase hung."""
    RUN_TIMEOUT = "run_timeout"
    """The run passed its deadline; its last step is saved."""
    PLACEMENT_FAILED = "placement_failed"
    """No cluster answers, or it cannot hold the trainer's workers."""
    ENGINE_FAILED = "engine_failed"
    """The sampling engine failed."""
    WEIGHT_SYNC_MISMATCH = "weight_sync_mismatch"
    """The canary found engine and learner apart."""
    LEARNER_FAILED = "learner_failed"
    """The gradient step failed."""
    NON_FINITE_UPDATE = "non_finite_update"
    """Loss or gradient became NaN or infinite."""
    STORAGE_FULL = "storage_full"
    """No space left for the run directory or the blob store."""
    TRAINER_CRASHED = "trainer_crashed"
    """The trainer died: a signal, an unknown error, or no exit record."""
    RUNNER_STOPPED = "runner_stopped"
    """The runner was asked to stop; the trainer checkpointed and left."""
    RUNNER_LOST = "runner_lost"
    """The runner's lease ran out."""
    ATTEMPT_SUPERSEDED = "attempt_superseded"
    """A newer attempt owns the run."""
    NO_RUNNER = "no_runner"
    """No runner claimed the attempt in time."""
    START_TIMEOUT = "start_timeout"
    """The trainer sent nothing after it was started."""
    STALLED = "stalled"
    """The trainer lives but makes no progress."""
    FINALIZE_TIMEOUT = "finalize_timeout"
    """The end of the trainer's events did not arrive."""
    INTERNAL = "internal"
    """A fault of the service itself."""
