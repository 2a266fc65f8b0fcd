"""Pass rates from stored outcomes: the only code that computes them, wherever they are displayed.

A task has n graded rollouts, of which c passed, and m without a grade. Only graded rollouts enter a
point estimate; the missing ones appear as coverage and as two bounds, in which all of them count as
fails, and as passes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from statistics import fmean, pvariance

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats.intervals import independent_trials, interval
from hillclimb.stats.reward_spread import differ

UNKNOWN = "unknown"
"""Group of the tasks whose difficulty or modality nobody stated."""


class Dimension(StrEnum):
    """Property of tasks by which pass rates are broken down."""

    ENVIRONMENT = "environment"
    DIFFICULTY = "difficulty"
    MODALITY = "modality"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskCount:
    """One task's rollouts, counted."""

    task_key: str
    env_key: str
    template: str
    held_out_template: bool
    num_graded: int
    num_passed: int
    num_missing: int
    """Rollouts that ended ungraded or in an infra error."""
    num_unbegun: int = 0
    """Those of them that were never started."""
    difficulty: int | None = None
    """1 to 3; None: unknown."""
    modality: str | None = None
    """None: unknown."""

    @property
    def is_begun(self) -> bool:
        """Tell whether any rollout was started; the time budget prevented the others."""
        return self.num_unbegun < self.num_graded + self.num_missing

    def with_missing(self, *, passed: bool) -> TaskCount:
        """Return the count in which every missing rollout is graded: as a pass, or as a fail."""
        if not self.num_missing:
            return self
        return TaskCount(
            task_key=self.task_key,
            env_key=self.env_key,
            template=self.template,
            held_out_template=self.held_out_template,
            num_graded=self.num_graded + self.num_missing,
            num_passed=self.num_passed + (self.num_missing if passed else 0),
            num_missing=0,
            difficulty=self.difficulty,
            modality=self.modality,
        )

    def group(self, dimension: Dimension) -> str:
        """Return the name of the task's group, `UNKNOWN` where the property is."""
        if dimension is Dimension.ENVIRONMENT:
            return self.env_key
        value = self.difficulty if dimension is Dimension.DIFFICULTY else self.modality
        return UNKNOWN if value is None else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PassRate:
    """pass@k over a set of tasks, with interval, bounds and counts. Rates are in [0, 1]."""

    k: int
    value: float | None
    """Mean over tasks with at least k graded rollouts; None when there is no such task."""
    low: float
    """Lower end of the 95 % interval (0 when there is no value)."""
    high: float
    """Upper end of the 95 % interval (1 when there is no value)."""
    bound_if_failed: float
    """The value with every missing rollout counted as a fail."""
    bound_if_passed: float
    """The value with every missing rollout counted as a pass."""
    num_tasks: int
    """Tasks that entered the value."""
    num_tasks_total: int
    num_graded: int
    num_rollouts: int

    @property
    def coverage(self) -> float:
        """Share of rollouts with a grade (0 when there are none)."""
        return self.num_graded / self.num_rollouts if self.num_rollouts else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTable:
    """One evaluation: pass@k per environment, over all tasks, and split by template."""

    by_env: Mapping[str, PassRate]
    overall: PassRate
    seen_templates: PassRate
    held_out_templates: PassRate


@lru_cache(maxsize=4096)
def pass_at_k(num_graded: int, num_passed: int, k: int) -> float:
    """Unbiased estimate of "at least one of k samples passes" (Chen et al. 2021, eq. 1).

    1 - C(n-c, k) / C(n, k), for n graded rollouts of which c passed.

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= k <= n.
    """
    if not 0 <= num_passed <= num_graded or not 1 <= k <= num_graded:
        raise ValueError(f"pass@{k} of {num_passed} passes in {num_graded} is undefined")
    return 1.0 - math.comb(num_graded - num_passed, k) / math.comb(num_graded, k)


def exact_pass_at_k(num_graded: int, num_passed: int, k: int) -> Fraction:
    """Return `pass_at_k` as a fraction, for exact tests; the same conditions hold."""
    pass_at_k(num_graded, num_passed, k)
    return 1 - Fraction(math.comb(num_graded - num_passed, k), math.comb(num_graded, k))


def count_tasks(rows: Iterable[OutcomeRow], *, pass_threshold: float) -> tuple[TaskCount, ...]:
    """Count outcomes per task, sorted by environment and task key."""
    by_task: dict[tuple[str, str], list[OutcomeRow]] = defaultdict(list)
    for row in rows:
        by_task[row.env_key, row.task_key].append(row)
    return tuple(_count(by_task[key], pass_threshold) for key in sorted(by_task))


def of_env(counts: Iterable[TaskCount], env_key: str) -> list[TaskCount]:
    """Return the counts of one environment's tasks."""
    return [count for count in counts if count.env_key == env_key]


def group_counts(counts: Iterable[TaskCount], dimension: Dimension) -> dict[str, list[TaskCount]]:
    """Return the counts by group, sorted by its name; the unknown ones come last."""
    groups: dict[str, list[TaskCount]] = defaultdict(list)
    for count in counts:
        groups[count.group(dimension)].append(count)
    return {name: groups[name] for name in sorted(groups, key=lambda name: (name == UNKNOWN, name))}


def pass_rate(counts: Sequence[TaskCount], *, k: int = 1) -> PassRate:
    """Average pass@k over tasks; see `intervals` for how its uncertainty is computed."""
    usable = [count for count in counts if count.num_graded >= k]
    values = _values(usable, k)
    value = fmean(values) if values else None
    most = independent_trials((count.num_graded for count in usable), value or 0.0, k)
    low, high = interval(values, max_trials=most)
    if value is None or any(count.num_missing for count in counts):
        bounds = _bound(counts, k, passed=False), _bound(counts, k, passed=True)
    else:
        bounds = value, value
    return PassRate(
        k=k,
        value=value,
        low=low,
        high=high,
        bound_if_failed=bounds[0],
        bound_if_passed=bounds[1],
        num_tasks=len(usable),
        num_tasks_total=len(counts),
        num_graded=sum(count.num_graded for count in counts),
        num_rollouts=sum(count.num_graded + count.num_missing for count in counts),
    )


def mean_pass_at_k(counts: Sequence[TaskCount], *, k: int = 1) -> float | None:
    """Return `pass_rate(counts, k=k).value` alone."""
    values = _values(counts, k)
    return fmean(values) if values else None


def pass_table(rows: Iterable[OutcomeRow], *, pass_threshold: float, k: int = 1) -> PassTable:
    """Compute one evaluation's table from its rows (one decoding, one step)."""
    counts = count_tasks(rows, pass_threshold=pass_threshold)
    by_env = group_counts(counts, Dimension.ENVIRONMENT)
    return PassTable(
        by_env={key: pass_rate(group, k=k) for key, group in by_env.items()},
        overall=pass_rate(counts, k=k),
        seen_templates=pass_rate([c for c in counts if not c.held_out_template], k=k),
        held_out_templates=pass_rate([c for c in counts if c.held_out_template], k=k),
    )


def variance_per_prompt(groups: Iterable[Sequence[float]]) -> float | None:
    """Population variance of a prompt's scores, averaged over prompts with two scores or more.

    At most 0.25 for scores of 0 and 1; None when no prompt has two scores.
    """
    variances = [pvariance(group) if differ(group) else 0.0 for group in groups if len(group) > 1]
    return fmean(variances) if variances else None


def signal_ratio(groups: Iterable[Sequence[float]]) -> float | None:
    """Share of prompts, among those with two scores or more, whose scores differ; None of none."""
    signals = [differ(group) for group in groups if len(group) > 1]
    return sum(signals) / len(signals) if signals else None


def _count(rows: Sequence[OutcomeRow], pass_threshold: float) -> TaskCount:
    scores = [
        row.score for row in rows if row.status is OutcomeStatus.GRADED and row.score is not None
    ]
    return TaskCount(
        task_key=rows[0].task_key,
        env_key=rows[0].env_key,
        template=rows[0].template,
        held_out_template=rows[0].held_out_template,
        num_graded=len(scores),
        num_passed=sum(score >= pass_threshold for score in scores),
        num_missing=len(rows) - len(scores),
        num_unbegun=sum(row.stop_reason is StopReason.NOT_STARTED for row in rows),
        difficulty=rows[0].difficulty,
        modality=rows[0].modality,
    )


def _values(counts: Iterable[TaskCount], k: int) -> list[float]:
    """Return pass@k of each task that has k grades."""
    return [pass_at_k(c.num_graded, c.num_passed, k) for c in counts if c.num_graded >= k]


def _bound(counts: Sequence[TaskCount], k: int, *, passed: bool) -> float:
    values = _values([count.with_missing(passed=passed) for count in counts], k)
    return fmean(values) if values else float(passed)
