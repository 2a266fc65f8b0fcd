"""Guards of liveness: idle GPUs, infra errors, missing grades."""

from __future__ import annotations

from collections.abc import Sequence

from api.scheduling.limits.guards.condition import GuardCheck, condition_of
from api.scheduling.limits.guards.readings import (
    ENGINES_S,
    LEARNER_S,
    MOST_RATE_STEPS,
    STEP_S,
    Readings,
    StepCounts,
)
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.payloads.events import GuardEvidence
from hillclimb.spec.monitoring.guards import OutcomeRateGuard
from hillclimb.stats.intervals import wilson


def check_idle_gpus(readings: Readings) -> GuardCheck:
    """Measure the share of the newest steps in which neither engines nor learner computed.

    The engines' time is averaged over them, and added to the learner's: where both compute at once
    the share is too low, never too high.
    """
    guard = readings.guards.idle_gpus
    durations, engines = readings.metric(STEP_S), readings.metric(ENGINES_S)
    steps = [step for step in engines if step in durations]
    total = sum(durations[step] for step in steps)
    missing = guard.window_steps - len(steps)
    if missing > 0 or total <= 0.0:
        share, message = None, f"{len(steps)} of {guard.window_steps} steps are measured"
    else:
        learner = sum(readings.metric(name).get(step, 0.0) for name in LEARNER_S for step in steps)
        busy = sum(engines[step] for step in steps) / readings.num_engines + learner
        share = max(0.0, 1.0 - busy / total)
        message = (
            f"engines and learner waited for {share:.0%} of the last {len(steps)} steps"
            f" (limit {guard.max_idle_share:.0%})"
        )
    is_met = share is not None and share > guard.max_idle_share
    return GuardCheck(
        condition=condition_of(is_met=is_met, is_clear=share is not None),
        evidence=GuardEvidence(
            message=message,
            measured=share,
            threshold=guard.max_idle_share,
            unit="share",
            n=len(steps),
            items="steps",
            first_step=min(steps, default=None),
            last_step=max(steps, default=None),
            figures={"seconds": total},
        ),
        needs=(
            f"{missing} more steps with timings"
            if missing > 0
            else f"more than {guard.max_idle_share:.0%} of the time without work"
        ),
    )


def check_infra_errors(readings: Readings) -> GuardCheck:
    """Measure the share of training rollouts that ended in an infra error."""
    words = "of rollouts ended in an infra error"
    return _check_rate(readings, readings.guards.infra_errors, OutcomeStatus.INFRA_ERROR, words)


def check_ungraded(readings: Readings) -> GuardCheck:
    """Measure the share of training rollouts that got no grade from their verifier."""
    words = "of rollouts got no grade"
    return _check_rate(readings, readings.guards.ungraded, OutcomeStatus.UNGRADED, words)


def _check_rate(
    readings: Readings, guard: OutcomeRateGuard, status: OutcomeStatus, words: str
) -> GuardCheck:
    steps = _newest(readings.steps, guard.window_rollouts)
    total = sum(each.num_rollouts for each in steps)
    missing = guard.min_rollouts - total
    rate, low, high = None, None, None
    message = f"{total} of {guard.min_rollouts} rollouts have ended"
    if missing <= 0:
        number = readings.count_ungraded(steps).get(status.value, 0)
        rate = number / total
        low, high = wilson(rate, total)
        message = (
            f"{rate:.1%} {words}: {number} of {total}, 95 % interval {low:.1%} to {high:.1%}"
            f" (limit {guard.max_rate:.0%})"
        )
    return GuardCheck(
        condition=condition_of(
            is_met=low is not None and low > guard.max_rate,
            is_clear=rate is not None and rate <= guard.max_rate,
        ),
        evidence=GuardEvidence(
            message=message,
            measured=rate,
            threshold=guard.max_rate,
            unit="share",
            n=total,
            items="rollouts",
            first_step=steps[0].step if steps else None,
            last_step=steps[-1].step if steps else None,
            low=low,
            high=high,
        ),
        needs=(
            f"{missing} more rollouts"
            if missing > 0
            else f"an interval of the share above {guard.max_rate:.0%}"
        ),
    )


def _newest(steps: Sequence[StepCounts], num_rollouts: int) -> Sequence[StepCounts]:
    """Return the newest whole steps with at least so many rollouts together."""
    total, first = 0, len(steps)
    while first > max(0, len(steps) - MOST_RATE_STEPS) and total < num_rollouts:
        first -= 1
        total += steps[first].num_rollouts
    return steps[first:]
