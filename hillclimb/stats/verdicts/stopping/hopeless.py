"""Futility of a run: the chance that the evaluation after its last step will be IMPROVED.

Predictive power (Spiegelhalter, Freedman and Blackburn 1986, *Controlled Clinical Trials* 7, 8-17):
the pass rate at the last step is projected by least squares over the evaluations so far, and the
chance is that of a normal distribution with the errors of the projection and of the evaluation to
come. Two projections are made, from all evaluations and from the newer half of them, and the larger
chance counts: a run that has begun to learn is not hopeless. How often a run is hopeless that would
have become IMPROVED is measured by `benchmarks/statistics/hopeless.py`: it depends on how late runs
begin to learn, which no test of the evaluations so far can know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from hillclimb.stats.intervals import CONFIDENCE_Z
from hillclimb.stats.verdicts.verdict import MIN_TASKS

MIN_FIT = 3
"""Evaluations of the smallest fit."""
_NORMAL = NormalDist()

Shares = Mapping[tuple[str, str], float]
"""Share of passes, in [0, 1], by environment and key of the tasks that have a grade."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImprovementChance:
    """The chance of IMPROVED at the last step, with what it was computed from."""

    value: float
    """In [0, 1]."""
    num_tasks: int
    """Tasks with a grade in every evaluation that was used."""
    change: float
    """Mean change since the first evaluation, in [-1, 1]."""
    projected: float
    """Change at the last step, by the projection that counts."""
    projected_low: float
    """Lower end of its 95 % prediction interval."""
    projected_high: float
    """Upper end."""
    needed: float
    """Change that would be significant at the last step."""


def improvement_chance(
    evaluations: Sequence[tuple[int, Shares]], *, last_step: int, one_sided_level: float
) -> ImprovementChance | None:
    """Return the chance that the evaluation at `last_step` improves on the first of these.

    None with fewer than two evaluations after the first, or too few tasks for a verdict.

    Args:
        evaluations: step and pass shares, by step.
        last_step: step of the planned evaluation, after the newest of these.
        one_sided_level: level of the test there, in (0, 1).
    """
    if len(evaluations) < MIN_FIT:
        return None
    steps = [step for step, _ in evaluations]
    keys = set.intersection(*(set(shares) for _, shares in evaluations))
    num_tasks = len(keys)
    if num_tasks < MIN_TASKS:
        return None
    rows = [[shares[key] for _, shares in evaluations] for key in keys]
    changes = [row[-1] - row[0] for row in rows]
    # One task gained and one lost are added: a few tasks without any change do not show that none
    # will.
    square = (math.fsum(change * change for change in changes) + 2.0) / (num_tasks + 2)
    z = -_NORMAL.inv_cdf(one_sided_level)
    fits = [
        _fit(rows, steps, size, last_step)
        for size in {len(steps), max(MIN_FIT, math.ceil(len(steps) / 2))}
    ]
    best = max(fits, key=lambda fit: fit.chance(z, square, num_tasks))
    margin = CONFIDENCE_Z * best.error
    return ImprovementChance(
        value=best.chance(z, square, num_tasks),
        num_tasks=num_tasks,
        change=fmean(changes),
        projected=best.change,
        projected_low=best.change - margin,
        projected_high=best.change + margin,
        needed=best.needed(z, square, num_tasks),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fit:
    """A projected change, and the standard error of predicting the measured one."""

    change: float
    error: float

    def needed(self, z: float, square: float, num_tasks: int) -> float:
        """Return the change that is significant; a large one has as many changed tasks."""
        return z * math.sqrt(max(square, min(abs(self.change), 1.0)) / num_tasks)

    def chance(self, z: float, square: float, num_tasks: int) -> float:
        """Return the chance that the measured change is significant."""
        missing = self.needed(z, square, num_tasks) - self.change
        return _NORMAL.cdf(-missing / self.error)


def _fit(rows: Sequence[Sequence[float]], steps: Sequence[int], size: int, last_step: int) -> _Fit:
    """Project the newest `size` evaluations to `last_step`.

    The variance of one task's measurement is that of the residuals of the tasks' own lines, with
    one task of each kind added that flips at every evaluation.
    """
    at = steps[-size:]
    centre = fmean(at)
    spread = math.fsum((step - centre) ** 2 for step in at)
    leverage = 1.0 / size + (last_step - centre) ** 2 / spread
    residuals, projected = 0.0, 0.0
    for row in rows:
        values = row[-size:]
        level = fmean(values)
        slope = math.fsum((s - centre) * v for s, v in zip(at, values, strict=True)) / spread
        residuals += math.fsum(
            (value - level - slope * (step - centre)) ** 2
            for step, value in zip(at, values, strict=True)
        )
        projected += level + slope * (last_step - centre)
    variance = (residuals / (size - 2) + 0.5) / (len(rows) + 2)
    start = fmean(row[0] for row in rows)
    return _Fit(
        change=min(projected / len(rows), 1.0) - start,
        error=math.sqrt(variance * (1.0 + leverage) / len(rows)),
    )
