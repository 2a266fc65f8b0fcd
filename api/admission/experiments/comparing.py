"""Arms of an experiment compared: pooled task by task, and with the spread between their seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from api.admission.campaigns.table import pooled
from api.admission.experiments.evidence import ArmEvidence, Counts
from hillclimb.stats.pass_rate import TaskCount
from hillclimb.stats.verdicts.compare import ComparisonTable, compare, shared_tasks
from hillclimb.stats.verdicts.experiments.families import FamilyFigure, family_change
from hillclimb.stats.verdicts.verdict import Selection

Filter = Callable[[TaskCount], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmAt:
    """An arm at the step of one of its evaluations."""

    arm: ArmEvidence
    step: int
    decoding: str

    def runs(self, keep: Filter | None = None) -> list[Counts]:
        """Return each run's counts, of the tasks to keep."""
        runs = self.arm.counts(self.step, self.decoding)
        return runs if keep is None else [[c for c in counts if keep(c)] for counts in runs]

    @property
    def is_complete(self) -> bool:
        """True where none of its evaluations ended early."""
        return self.arm.is_complete(self.step, self.decoding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The change from one side to the other: with the spread of the seeds, and pooled."""

    change: FamilyFigure
    table: ComparisonTable | None
    """Of the pooled tasks; None for pass@k above 1 of several runs, whose mixture is no policy."""


def last_of(arm: ArmEvidence, decoding: str) -> ArmAt | None:
    """Return the arm at its last common evaluation."""
    steps = arm.steps(decoding)
    return ArmAt(arm=arm, step=steps[-1], decoding=decoding) if steps else None


def first_of(arm: ArmEvidence, decoding: str) -> ArmAt | None:
    """Return the arm at its first evaluation, if a later one exists."""
    steps = arm.steps(decoding)
    return ArmAt(arm=arm, step=steps[0], decoding=decoding) if len(steps) > 1 else None


def difference(
    before: ArmAt, after: ArmAt, *, num_arms: int, k: int = 1, keep: Filter | None = None
) -> Difference:
    """Return the difference of two sides.

    The pooled comparison is corrected for the choice among arms and among evaluations: a step that
    is not the last of its schedule may have been chosen by its figures.
    """
    sides = before.runs(keep), after.runs(keep)
    change = family_change(*sides, k=k)
    is_mixture = k > 1 and max(map(len, sides)) > 1
    if is_mixture or not all(any(counts) for counts in sides):
        return Difference(change=change, table=None)
    candidates = num_arms * _candidates(before, after)
    counts = [pooled(c for run in side for c in run) for side in sides]
    is_complete = before.is_complete and after.is_complete
    old, new = counts if is_complete else shared_tasks(*counts)
    selection = Selection(num_candidates=candidates, is_complete=is_complete)
    return Difference(change=change, table=compare(old, new, selection=selection, k=k))


def _candidates(before: ArmAt, after: ArmAt) -> int:
    if before.arm is after.arm:
        return after.arm.num_candidates(after.step, before.step)
    sides: Sequence[ArmAt] = (before, after)
    product = 1
    for side in sides:
        product *= side.arm.num_candidates(side.step, 0)
    return product
