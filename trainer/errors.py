"""What can go wrong in the trainer, named by the boundary that was crossed.

TrainerError                 the run cannot go on; the attempt ends with `reason`
├── SpecError                the spec asks for something that cannot be done (user)
├── ModelUnavailable         the model's files are not there, torn, or incomplete
├── DataError                tasks cannot be loaded, or none are left (user)
├── CheckpointError          a checkpoint is missing, torn or of another configuration
├── EngineError              the sampling side failed
│   └── WeightSyncMismatch   engine and learner do not have the same weights after a sync
├── LearnerError             the gradient step failed
│   └── NonFiniteUpdate      loss or gradient is NaN or infinite
├── PlacementError           there is no place for the workers
├── StorageFull              the run directory cannot be written
├── StoreUnavailable         the blob store is away: another attempt tries again
├── EnvironmentOutage        too many rollouts ended without a grade: the run pauses
├── StepTimeout              a step passed its deadline: the run pauses
├── RunTimeout               the run passed its deadline: it ends with the last step saved
└── AttemptSuperseded        the service no longer accepts this attempt: exit at once

RolloutError                 one rollout failed for reasons that are not the policy's
├── EnvUnavailable           the environment did not start or does not answer
├── NoPrompt                 neither the task nor its environment says what is asked
├── PromptTooLong            with the tools of this instance, longer than the input limit
├── PromptDiffers            another prompt than most rollouts of the group got
├── EnvAtCapacity            as many environments run as may: no fault, the rollout waits
├── EngineRestarted          the engine died and starts again: the rollout waits and begins again
├── ToolTransport            a tool call got no answer (not: an answer that says "error")
├── VerifierUnavailable      the grade could not be computed
├── SampleUnusable           a server drew tokens and did not say how likely they were
└── RolloutDeadline          the environment, not the policy, used up the trajectory's time

A RolloutError is caught once, in `trainer/rollouts/roller.py`, and becomes data. Where most of the
rollouts without a grade lack what the spec can mend (NoPrompt, PromptTooLong, PromptDiffers), the
run ends with a SpecError instead of the EnvironmentOutage (`trainer/rollouts/outage.py`).
"""

from __future__ import annotations

from trainer.storable import storable


class TrainerError(Exception):
    """The attempt cannot go on. `reason` is a code of `trainer.contract.reasons.ReasonCode`."""

    reason = "trainer_crashed"

    def __str__(self) -> str:
        """Return the message; it may quote a server, and has to be stored."""
        return storable(super().__str__())


class SpecError(TrainerError, ValueError):
    """The spec asks for something this trainer cannot do."""

    reason = "spec_rejected"


class ModelUnavailable(TrainerError):
    """The model's files are not there, cannot be read, or lack a weight."""

    reason = "model_unavailable"


class DataError(TrainerError, ValueError):
    """Tasks cannot be loaded, or no task is left after the filters."""

    reason = "spec_rejected"


class CheckpointError(TrainerError):
    """A checkpoint is missing, torn, or belongs to another configuration."""

    reason = "checkpoint_unreadable"


class EngineError(TrainerError):
    """The sampling engine failed."""

    reason = "engine_failed"


class WeightSyncMismatch(EngineError):
    """Both sides differ after a weight sync: in the bits of a tensor, or in the canary's scores."""

    reason = "weight_sync_mismatch"


class LearnerError(TrainerError):
    """The gradient step failed."""

    reason = "learner_failed"


class NonFiniteUpdate(LearnerError):
    """Loss or gradient norm is NaN or infinite; the step was not applied."""

    reason = "non_finite_update"


class PlacementError(TrainerError):
    """No place for the workers: no cluster answers, or it is too small."""

    reason = "placement_failed"


class StorageFull(TrainerError, OSError):
    """The run directory or the blob store has no space left."""

    reason = "storage_full"


class StoreUnavailable(TrainerError):
    """The blob store, or where the model comes from, did not do what the attempt needs."""

    reason = "store_unavailable"


class EnvironmentOutage(TrainerError):
    """Rollouts without a grade passed `max_infra_error_rate`; the run pauses with a checkpoint."""

    reason = "environment_outage"


class StepTimeout(TrainerError):
    """A step, or an evaluation under one decoding, passed `schedule.step_timeout_s`."""

    reason = "step_timeout"

    def __init__(self, message: str, *, phase: str) -> None:
        """`phase` is where it hung, as in `PhaseStarted`."""
        super().__init__(message)
        self.phase = phase


class RunTimeout(TrainerError):
    """The run passed `schedule.run_timeout_s`; its last completed step is saved."""

    reason = "run_timeout"


class AttemptSuperseded(TrainerError):
    """A newer attempt owns the run; nothing this process writes counts any more."""

    reason = "attempt_superseded"


class RolloutError(Exception):
    """One rollout failed for a reason that is not the policy's; `code` is stored with it."""

    code = "rollout_failed"

    def __str__(self) -> str:
        """Return the message; it may quote a server, and has to be stored."""
        return storable(super().__str__())


class EnvUnavailable(RolloutError):
    """The environment did not start, or stopped answering."""

    code = "env_unavailable"


class NoPrompt(RolloutError):
    """The task has no prompt, and its environment gave none when it was reset."""

    code = "no_prompt"


class PromptTooLong(RolloutError):
    """The prompt, with the tools and words of the environment, is longer than the input limit."""

    code = "prompt_too_long"


class PromptDiffers(RolloutError):
    """The environment gave other tools or words than most rollouts of the group got.

    Never raised: it is seen once all of them have ended (`trainer/rollouts/one_prompt.py`).
    """

    code = "prompt_differs"


class EnvAtCapacity(RolloutError):
    """As many environments run as may: nothing is wrong, the rollout waits and begins again."""

    code = "env_at_capacity"


class EngineRestarted(RolloutError):
    """What was asked to draw died and is started again: no fault of policy or environment."""

    code = "engine_restarted"


class ToolTransport(RolloutError):
    """A tool call got no answer. A tool that answers with an error text is not this."""

    code = "tool_transport"


class VerifierUnavailable(RolloutError):
    """The grade could not be computed: the rollout is ungraded, which is not a zero."""

    code = "verifier_unavailable"


class SampleUnusable(RolloutError):
    """An engine elsewhere answered without what training needs, such as log-probs."""

    code = "sample_unusable"


class RolloutDeadline(RolloutError):
    """The environment used up the trajectory's time."""

    code = "env_deadline"
