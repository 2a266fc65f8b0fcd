"""Rule i1: the status of an issue from the share of rollouts that show its symptom.

A share is averaged over tasks, as pass rates are. If both evaluations have the same tasks, the
change is tested task by task (exact sign flips; McNemar's test with one rollout per task), else by
Fisher's exact test on the first rollout of every task: rollouts of one task are not independent.
The test is two-sided at 5 %, for one symptom and the two evaluations that were named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import product

from hillclimb.stats.paired import sign_flip_p_value
from hillclimb.stats.pass_rate import PassRate, TaskCount, pass_rate
from hillclimb.stats.power import detectable_paired, unpaired_size
from hillclimb.stats.verdicts.unpaired import fisher_exact
from hillclimb.stats.verdicts.verdict import MIN_TASKS

ISSUE_RULE = "i1"
LEVEL = 0.05
FIXED_BELOW = 0.05
"""Share of rollouts below which a symptom that became rarer counts as fixed."""
MIN_SHARED = 0.5
"""Share of the tasks of each evaluation that both must have for the paired test."""


class IssueStatus(StrEnum):
    """Status of an issue; nobody types one."""

    FIXED = "fixed"
    """Rarer, and now in less than 5 % of the rollouts."""
    IMPROVED = "improved"
    """Rarer."""
    UNCHANGED = "unchanged"
    """No change was shown, and half of the share would have been seen to go with power 0.8."""
    WORSE = "worse"
    """More frequent."""
    NEEDS_ANALYSIS = "needs_analysis"
    """Not enough is measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomCount:
    """One task's rollouts of an evaluation, counted."""

    env_key: str
    task_key: str
    num_known: int
    """Rollouts of which it is known whether they show the symptom."""
    num_showing: int
    num_unknown: int
    first_shows: bool | None
    """Of the first known rollout; None where none is."""

    def filled(self, *, showing: bool | None) -> SymptomCount:
        """Return the count in which every unknown rollout shows it, or does not; None: as it is."""
        if showing is None or not self.num_unknown:
            return self
        return SymptomCount(
            env_key=self.env_key,
            task_key=self.task_key,
            num_known=self.num_known + self.num_unknown,
            num_showing=self.num_showing + (self.num_unknown if showing else 0),
            num_unknown=0,
            first_shows=showing if self.first_shows is None else self.first_shows,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SymptomChange:
    """A symptom before and after; shares of rollouts are in [0, 1]."""

    before: PassRate
    after: PassRate
    delta: float | None
    """Mean change over the shared tasks of a paired test, else the difference of both shares."""
    is_paired: bool | None
    """None where nothing was tested."""
    num_paired: int
    """Tasks of which both evaluations have known rollouts."""
    p_value: float | None
    """Two-sided and exact."""
    status: IssueStatus
    why: str | None
    """Reason of NEEDS ANALYSIS in words; None of other statuses."""


Counts = Sequence[SymptomCount]


def judge_symptom(before: Counts, after: Counts) -> SymptomChange:
    """Return the change between two evaluations, with its status.

    If of some rollouts it is not known whether they show the symptom, the status is that which all
    completions of either side agree on (all of its unknown rollouts show it, or none does).
    """
    known = _judge(before, after)
    if not any(count.num_unknown for count in (*before, *after)):
        return known
    words = {
        _judge(_filled(before, showing=old), _filled(after, showing=new)).status
        for old, new in product((False, True), repeat=2)
    }
    if words <= {known.status}:
        return known
    unknown = sum(count.num_unknown for count in (*before, *after))
    why = f"{unknown} rollouts of which it is not known whether they show it could change the word"
    return replace(known, status=IssueStatus.NEEDS_ANALYSIS, why=known.why or why)


def _judge(before: Counts, after: Counts) -> SymptomChange:
    rates = [pass_rate([_task_count(count) for count in side]) for side in (before, after)]
    olds = {(c.env_key, c.task_key): c for c in before if c.num_known}
    pairs = [
        (olds[c.env_key, c.task_key], c)
        for c in after
        if c.num_known and (c.env_key, c.task_key) in olds
    ]
    is_paired = len(pairs) >= max(MIN_TASKS, MIN_SHARED * max(each.num_tasks for each in rates))
    delta, p_value, is_sensitive = (
        _paired(pairs, rates[0]) if is_paired else _unpaired(before, after, rates)
    )
    status, why = _status(rates, delta, p_value, is_sensitive=is_sensitive)
    return SymptomChange(
        before=rates[0],
        after=rates[1],
        delta=delta,
        is_paired=None if p_value is None else is_paired,
        num_paired=len(pairs),
        p_value=p_value,
        status=status,
        why=why,
    )


def _paired(
    pairs: Sequence[tuple[SymptomCount, SymptomCount]], before: PassRate
) -> tuple[float, float, bool]:
    """Return change and p, and whether half of the share before would have been seen to go."""
    differences = [
        Fraction(new.num_showing, new.num_known) - Fraction(old.num_showing, old.num_known)
        for old, new in pairs
    ]
    rise = float(sum(each for each in differences if each > 0)) / len(pairs)
    seen = detectable_paired(len(pairs), lost=rise)
    half = (before.value or 0.0) / 2.0
    delta = float(sum(differences, Fraction(0)) / len(pairs))
    return delta, sign_flip_p_value(differences), seen is not None and seen <= half


def _unpaired(
    before: Counts, after: Counts, rates: Sequence[PassRate]
) -> tuple[float | None, float | None, bool]:
    if min(each.num_tasks for each in rates) < MIN_TASKS:
        return None, None, False
    firsts = [
        [c.first_shows for c in side if c.first_shows is not None] for side in (before, after)
    ]
    showing, tasks = (sum(firsts[0]), sum(firsts[1])), (len(firsts[0]), len(firsts[1]))
    old, new = rates[0].value or 0.0, rates[1].value or 0.0
    is_sensitive = old > 0.0 and unpaired_size(old, old / 2.0) <= min(tasks)
    return new - old, fisher_exact(showing, tasks), is_sensitive


def _status(
    rates: Sequence[PassRate], delta: float | None, p_value: float | None, *, is_sensitive: bool
) -> tuple[IssueStatus, str | None]:
    old, new = (each.value for each in rates)
    if old is None or new is None:
        side = "earlier" if old is None else "later"
        return IssueStatus.NEEDS_ANALYSIS, f"no rollout of the {side} evaluation is known"
    if delta is None or p_value is None:
        fewest = min(each.num_tasks for each in rates)
        return (
            IssueStatus.NEEDS_ANALYSIS,
            f"an evaluation has {fewest} tasks: a test needs {MIN_TASKS}",
        )
    if not old and not new:
        return IssueStatus.NEEDS_ANALYSIS, "neither evaluation shows it"
    if p_value < LEVEL:
        if delta > 0.0:
            return IssueStatus.WORSE, None
        return (IssueStatus.FIXED if new < FIXED_BELOW else IssueStatus.IMPROVED), None
    if is_sensitive:
        return IssueStatus.UNCHANGED, None
    return IssueStatus.NEEDS_ANALYSIS, "too few tasks to show that half of it went"


def _filled(counts: Counts, *, showing: bool) -> Counts:
    return [count.filled(showing=showing) for count in counts]


def _task_count(count: SymptomCount) -> TaskCount:
    """Return the count in which showing the symptom stands for passing."""
    return TaskCount(
        task_key=count.task_key,
        env_key=count.env_key,
        template="",
        held_out_template=False,
        num_graded=count.num_known,
        num_passed=count.num_showing,
        num_missing=count.num_unknown,
    )
