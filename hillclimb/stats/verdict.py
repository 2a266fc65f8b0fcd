"""Verdicts on training: two evaluations compared task by task.

If outcomes are missing, the verdict is computed four times, with the missing ones of each side
counted as fails and as passes; unless all four agree it is inconclusive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import product

from hillclimb.protocol.outcomes import OutcomeRow
from hillclimb.stats.paired import sign_flip_p_value
from hillclimb.stats.pass_rate import PassRate, TaskCount, count_tasks, pass_rate

VERDICT_RULE = "v1"
"""Changes with any change of the rule; stored beside every verdict."""
SIGNIFICANCE = 0.05
SATURATED_FROM = 0.9
FAILING_UP_TO = 0.05
MIN_TASKS = 10
"""Fewer paired tasks are inconclusive."""


class Verdict(StrEnum):
    """Verdict on the effect of training on a set of tasks."""

    IMPROVED = "improved"
    """More passes, p < 0.05."""
    REGRESSED = "regressed"
    """Fewer passes, p < 0.05."""
    SATURATED = "saturated"
    """At least 90 % before and after: nothing left to learn."""
    FAILING = "failing"
    """At most 5 % after training."""
    FLAT = "flat"
    """No significant change."""
    INCONCLUSIVE = "inconclusive"
    """Too few tasks, or the missing outcomes could change the verdict."""
    NO_EVAL = "no_eval"
    """One of the two evaluations is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two evaluations of the same tasks under the same decoding."""

    before: PassRate
    after: PassRate
    delta: float | None
    """Mean change of pass@1 over paired tasks, in [-1, 1]."""
    num_paired: int
    """Tasks with a grade on both sides."""
    num_gained: int
    """Paired tasks whose pass share rose."""
    num_lost: int
    """Paired tasks whose pass share fell."""
    p_value: float | None
    """Two-sided, exact McNemar for one rollout per task, else the sign-flip test."""
    verdict: Verdict
    rule: str = VERDICT_RULE


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonTable:
    """Comparisons per environment, over all tasks, and split by template."""

    by_env: Mapping[str, Comparison]
    overall: Comparison
    seen_templates: Comparison
    held_out_templates: Comparison


def compare_rows(
    before: Iterable[OutcomeRow], after: Iterable[OutcomeRow], *, pass_threshold: float
) -> ComparisonTable:
    """Compare two evaluations of one decoding, given their stored rows."""
    old = count_tasks(before, pass_threshold=pass_threshold)
    new = count_tasks(after, pass_threshold=pass_threshold)
    env_keys = sorted({count.env_key for count in (*old, *new)})
    return ComparisonTable(
        by_env={
            key: compare(
                [count for count in old if count.env_key == key],
                [count for count in new if count.env_key == key],
            )
            for key in env_keys
        },
        overall=compare(old, new),
        seen_templates=compare(
            [c for c in old if not c.held_out_template], [c for c in new if not c.held_out_template]
        ),
        held_out_templates=compare(
            [c for c in old if c.held_out_template], [c for c in new if c.held_out_template]
        ),
    )


def compare(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> Comparison:
    """Compare two evaluations of one set of tasks, given their counts."""
    old, new = pass_rate(before), pass_rate(after)
    differences = _differences(before, after)
    return Comparison(
        before=old,
        after=new,
        delta=float(sum(differences) / len(differences)) if differences else None,
        num_paired=len(differences),
        num_gained=sum(difference > 0 for difference in differences),
        num_lost=sum(difference < 0 for difference in differences),
        p_value=sign_flip_p_value(differences) if differences else None,
        verdict=_verdict_over_bounds(before, after),
    )


def decide(before: float, after: float, differences: Sequence[Fraction]) -> Verdict:
    """Rule v1 on complete data: two pass rates and the paired differences."""
    if len(differences) < MIN_TASKS:
        return Verdict.INCONCLUSIVE
    change = sum(differences)
    significant = sign_flip_p_value(differences) < SIGNIFICANCE
    if significant and change < 0:
        return Verdict.REGRESSED
    if min(before, after) >= SATURATED_FROM:
        return Verdict.SATURATED
    if significant and change > 0:
        return Verdict.IMPROVED
    return Verdict.FAILING if after <= FAILING_UP_TO else Verdict.FLAT


def _verdict_over_bounds(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> Verdict:
    if not _any_graded(before) or not _any_graded(after):
        return Verdict.NO_EVAL
    verdicts = {
        _decide_counts(old, new) for old, new in product(_scenarios(before), _scenarios(after))
    }
    return verdicts.pop() if len(verdicts) == 1 else Verdict.INCONCLUSIVE


def _scenarios(counts: Sequence[TaskCount]) -> list[list[TaskCount]]:
    """Return the counts completed in each way: one when nothing is missing, else two."""
    if not any(count.num_missing for count in counts):
        return [list(counts)]
    return [[count.with_missing(passed=passed) for count in counts] for passed in (False, True)]


def _decide_counts(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> Verdict:
    old, new = pass_rate(before).value, pass_rate(after).value
    if old is None or new is None:
        return Verdict.NO_EVAL
    return decide(old, new, _differences(before, after))


def _any_graded(counts: Sequence[TaskCount]) -> bool:
    return any(count.num_graded for count in counts)


def _differences(before: Sequence[TaskCount], after: Sequence[TaskCount]) -> list[Fraction]:
    """Change of the pass share of every task that has a grade on both sides."""
    old = {(c.env_key, c.task_key): _share(c) for c in before if c.num_graded}
    return [
        _share(count) - old[count.env_key, count.task_key]
        for count in after
        if count.num_graded and (count.env_key, count.task_key) in old
    ]


def _share(count: TaskCount) -> Fraction:
    return Fraction(count.num_passed, count.num_graded)
