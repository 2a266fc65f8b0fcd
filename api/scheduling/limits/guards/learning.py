"""Guards of learning: signal, agreement of engine and learner, the mean reward."""

from __future__ import annotations

from statistics import median

from api.scheduling.limits.guards.condition import GuardCheck, condition_of
from api.scheduling.limits.guards.readings import ADVANTAGES, DRIFT, REWARD, Readings
from hillclimb.protocol.payloads.events import GuardEvidence
from hillclimb.stats.verdicts.stopping.reward_drop import reward_drop


def check_no_signal(readings: Readings) -> GuardCheck:
    """Count the newest steps in a row from which nothing can be learned."""
    guard = readings.guards.no_signal
    advantages, silent = readings.metric(ADVANTAGES), []
    for each in reversed(readings.steps):
        if each.num_mixed and advantages.get(each.step) != 0.0:
            break
        silent.append(each.step)
    number, steps = len(silent), "step" if guard.steps == 1 else "steps"
    return GuardCheck(
        condition=condition_of(is_met=number >= guard.steps, is_clear=number == 0),
        evidence=GuardEvidence(
            message=(
                f"{number} steps in a row without a group whose scores differ, or with advantages"
                f" that are all zero (limit {guard.steps})"
            ),
            measured=float(number) if readings.steps else None,
            threshold=float(guard.steps),
            unit="steps",
            n=number,
            items="steps",
            first_step=min(silent, default=None),
            last_step=max(silent, default=None),
        ),
        needs=f"{max(0, guard.steps - number)} more {steps} without signal",
    )


def check_logprob_drift(readings: Readings) -> GuardCheck:
    """Measure the median difference of log-probs over the newest steps."""
    guard = readings.guards.logprob_drift
    gaps = readings.metric(DRIFT)
    missing = guard.window_steps - len(gaps)
    gap = None if missing > 0 else median(gaps.values())
    message = (
        f"{len(gaps)} of {guard.window_steps} steps report the difference"
        if gap is None
        else f"log-probs of engine and learner differ by {gap:.2g} nat in the median of the last"
        f" {len(gaps)} steps (limit {guard.max_diff:g})"
    )
    return GuardCheck(
        condition=condition_of(
            is_met=gap is not None and gap > guard.max_diff, is_clear=gap is not None
        ),
        evidence=GuardEvidence(
            message=message,
            measured=gap,
            threshold=guard.max_diff,
            unit="nat",
            n=len(gaps),
            items="steps",
            first_step=min(gaps, default=None),
            last_step=max(gaps, default=None),
            figures={"largest": max(gaps.values(), default=None)},
        ),
        needs=(
            f"{missing} more steps that report it"
            if missing > 0
            else f"a median above {guard.max_diff:g} nat"
        ),
    )


def check_reward_collapse(readings: Readings) -> GuardCheck:
    """Test the newest window of mean rewards against the best one before it."""
    guard = readings.guards.reward_collapse
    rewards = readings.metric(REWARD)
    steps, size = list(rewards), guard.window_steps
    drop = reward_drop(list(rewards.values()), window=size, num_looks=max(1, readings.last_step))
    needs = f"a fall by {guard.min_drop:g} at p <= {guard.max_p:g}, corrected"
    if drop is None:
        message = f"{len(steps)} of {2 * size} steps have a mean reward"
        needs = f"{2 * size - len(steps)} more steps, and {needs}"
        figures: dict[str, float | None] = {}
    else:
        message = (
            f"the mean reward of the last {size} steps is {drop.newest:.3f}, and was"
            f" {drop.best:.3f} in the {size} steps up to step {steps[drop.best_end]}: Welch's test,"
            f" corrected p {drop.p_value:.2g} (limits: a fall by {guard.min_drop:g},"
            f" p {guard.max_p:g})"
        )
        figures = {
            "best": drop.best,
            "newest": drop.newest,
            "best_until_step": float(steps[drop.best_end]),
            "num_windows": float(drop.num_windows),
            "correlation": drop.correlation,
        }
    return GuardCheck(
        condition=condition_of(
            is_met=drop is not None and drop.size >= guard.min_drop and drop.p_value <= guard.max_p,
            is_clear=drop is not None and drop.size < guard.min_drop,
        ),
        evidence=GuardEvidence(
            message=message,
            measured=None if drop is None else drop.p_value,
            threshold=guard.max_p,
            unit="p-value",
            n=len(steps),
            items="steps",
            first_step=steps[0] if steps else None,
            last_step=steps[-1] if steps else None,
            figures=figures,
        ),
        needs=needs,
    )
