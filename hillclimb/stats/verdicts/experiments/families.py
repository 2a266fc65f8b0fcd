"""Families of runs: seed replicates of one configuration, their spread, and their difference.

A figure of a family is the mean over its runs. Two things make it uncertain: other tasks would have
been drawn, and other seeds. Their variances are added, which counts the noise of single rollouts
twice and so errs towards wide intervals; Student's quantile has the degrees of freedom of Welch and
Satterthwaite. Where no side has two runs, the spread between seeds is not known and the interval
covers the tasks alone. A simulation in the tests measures the coverage.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from hillclimb.stats.intervals import interval
from hillclimb.stats.pass_rate import TaskCount, pass_at_k, pass_rate
from hillclimb.stats.verdicts.experiments.student import t_quantile

Runs = Sequence[Sequence[TaskCount]]
"""The counts of an evaluation, of each run of a family."""
Values = Mapping[tuple[str, str], float]
"""pass@k by environment and task."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The values of a family's runs."""

    num_runs: int
    mean: float | None
    """None without runs."""
    sd: float | None
    """Standard deviation between the runs (n - 1); None for fewer than two."""
    least: float | None
    most: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFigure:
    """A mean over the runs of a family, or a difference of two, with its 95 % interval."""

    value: float | None
    low: float
    high: float
    num_tasks: int
    covers_seeds: bool
    """False where the interval covers the tasks alone: no family has two runs."""


def spread_of(values: Sequence[float]) -> Spread:
    """Return the spread of the runs' values."""
    return Spread(
        num_runs=len(values),
        mean=fmean(values) if values else None,
        sd=math.sqrt(variance(values)) if len(values) > 1 else None,
        least=min(values, default=None),
        most=max(values, default=None),
    )


def family_rate(runs: Runs, *, k: int = 1) -> FamilyFigure:
    """Return pass@k of a family: the mean over its runs of the mean over their tasks."""
    if len(runs) == 1:
        rate = pass_rate(runs[0], k=k)
        return FamilyFigure(
            value=rate.value,
            low=rate.low,
            high=rate.high,
            num_tasks=rate.num_tasks,
            covers_seeds=False,
        )
    tasks = _means([_values(run, k) for run in runs])
    if not tasks:
        return FamilyFigure(value=None, low=0.0, high=1.0, num_tasks=0, covers_seeds=False)
    means = [fmean(values) for run in runs if (values := list(_values(run, k).values()))]
    value = fmean(means)
    half = _half(_Part.of(list(tasks.values())), _Part.of(means))
    # Near 0 and 1 nothing varies: at least as wide as the interval of that many tasks.
    low, high = interval(list(tasks.values()), max_trials=float(len(tasks) * len(runs)))
    return FamilyFigure(
        value=value,
        low=max(0.0, min(low, value - half)),
        high=min(1.0, max(high, value + half)),
        num_tasks=len(tasks),
        covers_seeds=len(means) > 1,
    )


def family_change(before: Runs, after: Runs, *, k: int = 1) -> FamilyFigure:
    """Return the change of pass@k between two families, over the tasks that both have."""
    old, new = ([_values(run, k) for run in runs] for runs in (before, after))
    first, second = _means(old), _means(new)
    shared = [task for task in first if task in second]
    if not shared:
        return FamilyFigure(value=None, low=-1.0, high=1.0, num_tasks=0, covers_seeds=False)
    differences = [second[task] - first[task] for task in shared]
    means = [_run_means(side, shared) for side in (old, new)]
    value = fmean(differences)
    seeds = [_Part.of(side) for side in means]
    known = [part for part in seeds if part.freedom]
    if len(known) == 1:  # one side has a single run: it is taken to spread as the other does
        (part,) = known
        seeds = [part, _Part(part.variance * (part.freedom + 1.0), part.freedom)]
    half = _half(_changes_part(differences), *seeds)
    return FamilyFigure(
        value=value,
        low=max(-1.0, value - half),
        high=min(1.0, value + half),
        num_tasks=len(shared),
        covers_seeds=bool(known),
    )


def series_change(before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the difference of two families' mean values (Welch).

    None where a family has fewer than two runs.
    """
    if min(len(before), len(after)) < 2:
        return None
    half = _half(_Part.of(before), _Part.of(after))
    value = fmean(after) - fmean(before)
    return value - half, value + half


def series_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of a family's mean value; None for fewer than two runs."""
    if len(values) < 2:
        return None
    half = _half(_Part.of(values))
    return fmean(values) - half, fmean(values) + half


@dataclass(frozen=True, slots=True)
class _Part:
    """The variance of a mean, with its degrees of freedom; both 0 for a single value."""

    variance: float
    freedom: float

    @classmethod
    def of(cls, values: Sequence[float]) -> _Part:
        if len(values) < 2:
            return cls(0.0, 0.0)
        return cls(variance(values) / len(values), len(values) - 1.0)


def _changes_part(differences: Sequence[float]) -> _Part:
    """Return the variance of a mean change with half a task added at +1 and -1, and one at 0.

    Agresti and Min 2005 for matched pairs: few changes among few tasks show too little variance.
    """
    weight = len(differences) + 2.0
    centre = math.fsum(differences) / weight
    square = (math.fsum(each * each for each in differences) + 1.0) / weight
    return _Part((square - centre * centre) / weight, weight - 1.0)


def _half(*parts: _Part) -> float:
    """Half the width of the interval of a sum of independent means (Satterthwaite 1946)."""
    total = math.fsum(part.variance for part in parts)
    if total == 0.0:
        return 0.0
    lost = math.fsum(part.variance**2 / part.freedom for part in parts if part.freedom)
    return t_quantile(total**2 / lost) * math.sqrt(total)


def _values(counts: Sequence[TaskCount], k: int) -> Values:
    return {
        (c.env_key, c.task_key): pass_at_k(c.num_graded, c.num_passed, k)
        for c in counts
        if c.num_graded >= k
    }


def _means(runs: Sequence[Values]) -> dict[tuple[str, str], float]:
    """Return each task's mean over the runs that graded it."""
    by_task: dict[tuple[str, str], list[float]] = defaultdict(list)
    for run in runs:
        for task, value in run.items():
            by_task[task].append(value)
    return {task: fmean(values) for task, values in sorted(by_task.items())}


def _run_means(runs: Sequence[Values], tasks: Sequence[tuple[str, str]]) -> list[float]:
    """Return the mean over these tasks of each run that graded one."""
    chosen = ([run[task] for task in tasks if task in run] for run in runs)
    return [fmean(values) for values in chosen if values]
