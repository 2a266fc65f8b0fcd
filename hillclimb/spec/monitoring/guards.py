"""The section `guards`: conditions under which the service warns of a run, pauses it or stops it.

The service evaluates them as events arrive (docs/guards.md); the trainer does not read them.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.spec.section import Seconds, Section, Share

GuardPolicy = Literal["alert", "pause", "stop"]
Steps = Annotated[int, Field(ge=1, le=1000)]
Rollouts = Annotated[int, Field(ge=1, le=10_000)]


class GuardSpec(Section):
    """Base of the guards."""

    policy: GuardPolicy | None = "alert"
    """`alert`: an event and, with `notify.slack`, a message. `pause`: also pause the run with a
    checkpoint. `stop`: also end it with a checkpoint, as `cancelled`. null: off."""


class StuckProgressGuard(GuardSpec):
    """No step, evaluation or checkpoint for much longer than usual."""

    factor: Annotated[float, Field(ge=2.0, le=1000.0)] = 10.0
    """Trips after this many times the median step, or during an evaluation the longest one so far;
    both are of the current attempt, once it has taken three steps."""
    min_s: Seconds = 600.0
    """Never trips before this time (seconds). Where `schedule.step_timeout_s` is shorter, that
    deadline comes first."""


class IdleGpusGuard(GuardSpec):
    """Engines and learner wait for most of the time."""

    max_idle_share: Share = 0.9
    """Share of the time of steps in which no engine had a request and the learner did not compute:
    above it the guard trips."""
    window_steps: Steps = 20
    """The newest steps over which it is measured (count)."""


class OutcomeRateGuard(GuardSpec):
    """Too many training rollouts end without a grade, for one kind of reason."""

    max_rate: Share = 0.2
    """Trips once the 95 % interval of the share lies above this."""
    window_rollouts: Rollouts = 200
    """The newest whole steps with at least so many rollouts together, at most 50 steps (count)."""
    min_rollouts: Rollouts = 50
    """With fewer rollouts in the window it does not trip (count)."""

    @model_validator(mode="after")
    def _the_window_has_enough(self) -> Self:
        if self.min_rollouts > self.window_rollouts:
            raise ValueError(
                f"min_rollouts ({self.min_rollouts}) is above window_rollouts"
                f" ({self.window_rollouts}): lower the first or raise the second"
            )
        return self


class InfraErrorsGuard(OutcomeRateGuard):
    """Rollouts that end in an infra error after all retries."""


class UngradedGuard(OutcomeRateGuard):
    """Rollouts whose verifier returns no grade."""


class NoSignalGuard(GuardSpec):
    """Steps from which nothing can be learned."""

    steps: Steps = 10
    """Trips after so many steps in a row without a group whose scores differ, or whose advantages
    are all zero (count)."""


class LogprobDriftGuard(GuardSpec):
    """Engine and learner disagree about the log-probs of the same tokens."""

    max_diff: Annotated[float, Field(gt=0.0, le=100.0)] = 0.1
    """Trips when the median of `policy/rollout_train_logprobs_abs_diff_mean` over the window is
    above this (nat)."""
    window_steps: Steps = 5
    """The newest steps with this metric (count); fewer do not trip."""


class RewardCollapseGuard(GuardSpec):
    """The mean reward of training rollouts has fallen from its best window."""

    window_steps: Annotated[int, Field(ge=3, le=200)] = 10
    """Steps of the newest window, and of each earlier one (count)."""
    min_drop: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Trips only if the mean score fell by at least this from the best earlier window..."""
    max_p: Annotated[float, Field(gt=0.0, le=0.5)] = 0.001
    """... and Welch's test of the steps' means gives at most this p-value, corrected for the choice
    of the best window and for a look after every step."""


class EvalFlatGuard(GuardSpec):
    """Evaluations that no longer improve."""

    evaluations: Annotated[int, Field(ge=1, le=50)] = 5
    """Trips when none of the newest so many evaluations is IMPROVED over the one before them, by
    the verdicts' rule (count)."""
    min_gain: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Trips only if the evaluations have enough tasks to show a gain of this size in the pass rate
    (power 0.8)."""


class HopelessGuard(GuardSpec):
    """The evaluation after the last step will hardly be IMPROVED over the first one."""

    max_chance: Annotated[float, Field(gt=0.0, le=0.5)] = 0.02
    """Trips when the chance of IMPROVED is below this, even if the final change is the end of its
    95 % interval that favours it most."""
    min_share_done: Share = 0.5
    """Share of `schedule.total_steps` that must have been taken."""
    min_evaluations: Annotated[int, Field(ge=2, le=50)] = 3
    """Evaluations after the first one that must be there (count)."""


class GuardsSpec(Section):
    """Guards of a run of kind `train`, in the order in which they are evaluated (docs/guards.md).

    If several trip at once, each is reported, and the first with `pause` or `stop` acts.
    """

    stuck_progress: StuckProgressGuard = StuckProgressGuard()
    """No progress for much longer than usual."""
    idle_gpus: IdleGpusGuard = IdleGpusGuard()
    """Engines and learner wait."""
    infra_errors: InfraErrorsGuard = InfraErrorsGuard()
    """Rollouts end in infra errors."""
    ungraded: UngradedGuard = UngradedGuard()
    """Rollouts get no grade."""
    no_signal: NoSignalGuard = NoSignalGuard()
    """Nothing can be learned from the steps."""
    logprob_drift: LogprobDriftGuard = LogprobDriftGuard()
    """Engine and learner disagree."""
    reward_collapse: RewardCollapseGuard = RewardCollapseGuard()
    """The mean reward has fallen."""
    eval_flat: EvalFlatGuard = EvalFlatGuard()
    """Evaluations no longer improve."""
    hopeless: HopelessGuard = HopelessGuard()
    """The last evaluation will hardly be IMPROVED."""


GUARDS: tuple[str, ...] = tuple(GuardsSpec.model_fields)
"""Names of the guards, in the order in which they are evaluated."""
