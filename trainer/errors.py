"""Errors of the trainer, named by the boundary where they occur.

TrainerError                 the run cannot go on; the attempt ends with `reason`
├── SpecError                the spec requires something impossible (user)
├── ModelUnavailable         the model's files are missing, torn, or incomplete
├── DataError                tasks cannot be loaded, or none remain (user)
├── CheckpointError          a checkpoint is missing, torn or of another configuration
├── EngineError              an engine failed
│   └── WeightSyncMismatch   engine and learner have different weights after a sync
├── LearnerError             the gradient step failed
│   └── NonFiniteUpdate      loss or gradient is NaN or infinite
├── PlacementError           the workers cannot be placed
├── StorageFull              the run directory cannot be written
├── StoreUnavailable         the blob store is unavailable: another attempt tries again
├── EnvironmentOutage        too many rollouts ended without a grade: the run pauses
├── StepTimeout              a step passed its deadline: the run pauses
├── RunTimeout               the run passed its deadline: it ends with the last step saved
└── AttemptSuperseded        the service no longer accepts this attempt: exit at once
"""

from __future__ import annotations

from hillclimb.environment.sanitize import sanitize_unicode


class TrainerError(Exception):
    """The attempt cannot go on; `reason` is a `hillclimb.protocol.end_reasons.ReasonCode`."""

    reason = "trainer_crashed"

    def __str__(self) -> str:
        """Return the message without characters that cannot be stored; it may quote a server."""
        return sanitize_unicode(super().__str__())


class SpecError(TrainerError, ValueError):
    """The spec requires something this trainer cannot do."""

    reason = "spec_rejected"


class ModelUnavailable(TrainerError):
    """The model's files are missing, cannot be read, or lack a weight."""

    reason = "model_unavailable"


class DataError(TrainerError, ValueError):
    """Tasks cannot be loaded, or no task remains after the filters."""

    reason = "spec_rejected"


class CheckpointError(TrainerError):
    """A checkpoint is missing, torn, or belongs to another configuration."""

    reason = "checkpoint_unreadable"


class EngineError(TrainerError):
    """The sampling engine failed."""

    reason = "engine_failed"


class WeightSyncMismatch(EngineError):
    """Engine and learner differ after a sync: in the bits of a tensor or the canary's scores."""

    reason = "weight_sync_mismatch"


class LearnerError(TrainerError):
    """The gradient step failed."""

    reason = "learner_failed"


class NonFiniteUpdate(LearnerError):
    """Loss or gradient norm is NaN or infinite; the step was not applied."""

    reason = "non_finite_update"


class PlacementError(TrainerError):
    """The workers cannot be placed: no Ray cluster answers, or it is too small."""

    reason = "placement_failed"


class StorageFull(TrainerError, OSError):
    """The run directory or the blob store has no space left."""

    reason = "storage_full"


class StoreUnavailable(TrainerError):
    """The blob store, or the source of the model, failed an operation that the attempt needs."""

    reason = "store_unavailable"


class EnvironmentOutage(TrainerError):
    """Rollouts without a grade passed `max_infra_error_rate`; the run pauses with a checkpoint."""

    reason = "environment_outage"


class StepTimeout(TrainerError):
    """A step, or an evaluation under one decoding, passed `schedule.step_timeout_s`."""

    reason = "step_timeout"

    def __init__(self, message: str, *, phase: str) -> None:
        """`phase` is the phase that hung, as in `PhaseStarted`."""
        super().__init__(message)
        self.phase = phase


class RunTimeout(TrainerError):
    """The run passed `schedule.run_timeout_s`; its last completed step is saved."""

    reason = "run_timeout"


class AttemptSuperseded(TrainerError):
    """A newer attempt owns the run; this process must not write any more."""

    reason = "attempt_superseded"
