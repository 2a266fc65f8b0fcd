"""Signal report: whether training can learn from an environment, whether it does, and why not.

GRPO learns from groups whose scores differ. `signal_ratio` is the share of such groups,
`signal_steps` the share of steps with at least one, `variance_per_prompt` the population variance
of a group's scores averaged over groups: three figures that are never mixed. Groups with fewer than
two grades enter none of them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean, pvariance

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus
from hillclimb.stats.intervals import CONFIDENCE_Z, wilson
from hillclimb.stats.reward_spread import ROUNDING, differ

LOW_SIGNAL_STEPS = 0.25
"""Below this share of steps with signal an environment is too hard or too easy."""
LOW_SIGNAL_RATIO = 0.1
"""Below this share of groups likewise, however many groups a step has: the probe's border."""
UNCLIPPED = 0.001
"""Up to this share of clipped tokens the updates hardly move the policy."""
MIN_TREND_STEPS = 5
"""Fewer steps have no trend."""


class SignalReading(StrEnum):
    """Statement of an environment's figures in plain words."""

    NO_GRADES = "no_grades"
    """No group has two grades."""
    SATURATED = "saturated"
    """Nearly no group has signal: most pass as a whole."""
    TOO_HARD = "too_hard"
    """Nearly no group has signal: most fail as a whole."""
    SPLIT = "split"
    """Nearly no group has signal: some tasks always pass, and some never do."""
    LEARNING = "learning"
    """The scores rise."""
    FALLING = "falling"
    """The scores fall."""
    UNCLIPPED = "unclipped"
    """There is signal, the scores do not move, and no update is large enough to be clipped."""
    NOT_MOVING = "not_moving"
    """There is signal, and the scores do not move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSignal:
    """The groups of one environment in one training step, counted."""

    step: int
    env_key: str
    num_rollouts: int
    num_graded: int
    score_sum: float
    num_groups: int
    """Groups with two grades or more."""
    num_mixed: int
    """Those whose scores differ."""
    num_all_zero: int
    """Those whose scores are all 0."""
    num_all_one: int
    """Those whose scores are all 1."""
    variance_sum: float
    """Sum of the groups' population variances (score squared)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Change of the mean score per step, by least squares over steps weighted by grades."""

    slope: float
    low: float
    """Lower end of the 95 % interval (normal approximation)."""
    high: float
    """Upper end of the 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvSignal:
    """Signal of one environment, or of all, over a window of steps; shares in [0, 1]."""

    num_steps: int
    """Steps in which a group had two grades."""
    num_groups: int
    coverage: float
    """Share of rollouts with a grade."""
    mean_score: float | None
    signal_steps: float | None
    signal_ratio: float | None
    signal_ratio_low: float
    """Lower end of the 95 % interval."""
    signal_ratio_high: float
    """Upper end of the 95 % interval."""
    all_zero_ratio: float | None
    all_one_ratio: float | None
    variance_per_prompt: float | None
    is_below_border: bool
    """Whether `signal_steps` lies below 25 %."""
    trend: Trend | None
    reading: SignalReading
    why: str
    """The reading as a sentence with its figures."""


def step_signals(step: int, rows: Iterable[OutcomeRow], *, group_size: int) -> list[StepSignal]:
    """Count the groups of a step's training rollouts per environment.

    A step may draw a task more than once: samples 0 to `group_size` - 1 are its first group.
    """
    groups: dict[str, dict[tuple[str, int], list[OutcomeRow]]] = defaultdict(dict)
    for row in rows:
        place = (row.task_key, row.sample_index // group_size)
        groups[row.env_key].setdefault(place, []).append(row)
    return [_count(step, key, list(of_env.values())) for key, of_env in sorted(groups.items())]


def report_signal(steps: Sequence[StepSignal], *, clip_ratio: float | None) -> EnvSignal:
    """Return the report of the steps of one environment, or of several.

    Args:
        steps: in any order; counts of one step are added up.
        clip_ratio: mean share of clipped tokens in the window, in [0, 1]; None if unknown.
    """
    by_step: dict[int, list[StepSignal]] = defaultdict(list)
    for each in steps:
        if each.num_groups:
            by_step[each.step].append(each)
    num_groups = sum(each.num_groups for each in steps)
    mixed = sum(each.num_mixed for each in steps)
    num_graded = sum(each.num_graded for each in steps)
    with_signal = sum(any(each.num_mixed for each in group) for group in by_step.values())
    low, high = wilson(mixed / num_groups, num_groups) if num_groups else (0.0, 1.0)
    signal_steps = with_signal / len(by_step) if by_step else None
    trend = _trend(by_step)
    shares = _Shares(
        signal_steps=signal_steps,
        mixed=_share(mixed, num_groups),
        all_zero=_share(sum(each.num_all_zero for each in steps), num_groups),
        all_one=_share(sum(each.num_all_one for each in steps), num_groups),
    )
    reading = _read(shares, trend, clip_ratio)
    return EnvSignal(
        num_steps=len(by_step),
        num_groups=num_groups,
        coverage=_share(num_graded, sum(each.num_rollouts for each in steps)) or 0.0,
        mean_score=_share(math.fsum(each.score_sum for each in steps), num_graded),
        signal_steps=signal_steps,
        signal_ratio=shares.mixed,
        signal_ratio_low=low,
        signal_ratio_high=high,
        all_zero_ratio=shares.all_zero,
        all_one_ratio=shares.all_one,
        variance_per_prompt=_share(math.fsum(each.variance_sum for each in steps), num_groups),
        is_below_border=signal_steps is not None and signal_steps < LOW_SIGNAL_STEPS,
        trend=trend,
        reading=reading,
        why=_why(reading, shares, trend, clip_ratio),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shares:
    signal_steps: float | None
    mixed: float | None
    all_zero: float | None
    all_one: float | None


def _count(step: int, env_key: str, groups: Sequence[Sequence[OutcomeRow]]) -> StepSignal:
    scores = [
        [r.score for r in group if r.status is OutcomeStatus.GRADED and r.score is not None]
        for group in groups
    ]
    whole = [group for group in scores if len(group) > 1]
    mixed = [group for group in whole if differ(group)]
    alike = [fmean(group) for group in whole if not differ(group)]
    return StepSignal(
        step=step,
        env_key=env_key,
        num_rollouts=sum(map(len, groups)),
        num_graded=sum(map(len, scores)),
        score_sum=math.fsum(score for group in scores for score in group),
        num_groups=len(whole),
        num_mixed=len(mixed),
        num_all_zero=sum(score <= ROUNDING for score in alike),
        num_all_one=sum(score >= 1.0 - ROUNDING for score in alike),
        variance_sum=math.fsum(pvariance(group) for group in mixed),
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _trend(by_step: dict[int, list[StepSignal]]) -> Trend | None:
    """Return the weighted least-squares slope, with the residual variance of the fit."""
    if len(by_step) < MIN_TREND_STEPS:
        return None
    points = [
        (float(step), sum(e.score_sum for e in group), float(sum(e.num_graded for e in group)))
        for step, group in by_step.items()
    ]
    weights = math.fsum(weight for _, _, weight in points)
    mean_x = math.fsum(weight * x for x, _, weight in points) / weights
    mean_y = math.fsum(total for _, total, _ in points) / weights
    spread = math.fsum(weight * (x - mean_x) ** 2 for x, _, weight in points)
    slope = math.fsum((x - mean_x) * (total - weight * mean_y) for x, total, weight in points)
    slope /= spread
    residuals = math.fsum(
        weight * (total / weight - mean_y - slope * (x - mean_x)) ** 2
        for x, total, weight in points
    )
    error = math.sqrt(residuals / (len(points) - 2) / spread)
    return Trend(slope=slope, low=slope - CONFIDENCE_Z * error, high=slope + CONFIDENCE_Z * error)


def _read(shares: _Shares, trend: Trend | None, clip_ratio: float | None) -> SignalReading:
    """Read signal first, then movement: without signal a trend is drift."""
    if shares.mixed is None or shares.signal_steps is None:
        return SignalReading.NO_GRADES
    if shares.signal_steps < LOW_SIGNAL_STEPS or shares.mixed < LOW_SIGNAL_RATIO:
        zero, one = shares.all_zero or 0.0, shares.all_one or 0.0
        if one == zero:  # both are 0 where all groups agree on a score in between
            return SignalReading.SPLIT
        if one >= 2.0 * zero:
            return SignalReading.SATURATED
        return SignalReading.TOO_HARD if zero >= 2.0 * one else SignalReading.SPLIT
    if trend is not None and trend.low > 0.0:
        return SignalReading.LEARNING
    if trend is not None and trend.high < 0.0:
        return SignalReading.FALLING
    is_unclipped = clip_ratio is not None and clip_ratio <= UNCLIPPED
    return SignalReading.UNCLIPPED if is_unclipped else SignalReading.NOT_MOVING


def _why(
    reading: SignalReading, shares: _Shares, trend: Trend | None, clip_ratio: float | None
) -> str:
    if shares.mixed is None or shares.signal_steps is None:
        return "no group has two grades: look at the infra errors"
    signal = f"{shares.mixed:.0%} of groups and {shares.signal_steps:.0%} of steps have signal"
    zero, one = f"{shares.all_zero or 0.0:.0%}", f"{shares.all_one or 0.0:.0%}"
    moves = (
        f"the mean score changes by {100.0 * trend.slope:+.2f} points per step"
        f" ({100.0 * trend.low:+.2f} to {100.0 * trend.high:+.2f})"
        if trend is not None
        else f"fewer than {MIN_TREND_STEPS} steps have no trend"
    )
    match reading:
        case SignalReading.SATURATED:
            return f"{signal}; {one} pass as a whole: leave it out, or add harder tasks"
        case SignalReading.TOO_HARD:
            return f"{signal}; {zero} fail as a whole: easier tasks, larger groups, a better start"
        case SignalReading.SPLIT:
            return f"{signal}; {one} pass and {zero} fail as a whole: train on other tasks"
        case SignalReading.UNCLIPPED:
            few = f"{clip_ratio or 0.0:.2%} of tokens are clipped"
            return f"{signal}, {moves}, and {few}: raise the learning rate"
        case _:
            return f"{signal}; {moves}"
