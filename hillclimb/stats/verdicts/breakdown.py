"""Change of pass@k by environment, difficulty or modality: estimates with intervals, no tests.

Verdicts are corrected over environments alone. Rows of other dimensions would be further tests of
the same tasks, so they have no p-value and no word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hillclimb.stats.pass_rate import UNKNOWN, Dimension, PassRate, TaskCount, pass_rate
from hillclimb.stats.verdicts.compare import paired_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """pass@k of a group of tasks in two evaluations; rates are in [0, 1]."""

    before: PassRate
    after: PassRate
    delta: float | None
    """Mean change over paired tasks, in [-1, 1]; None without one."""
    num_paired: int
    """Tasks with k grades on both sides."""
    num_gained: int
    """Paired tasks whose pass@k rose."""
    num_lost: int
    """Paired tasks whose pass@k fell."""


def change_of(before: Sequence[TaskCount], after: Sequence[TaskCount], *, k: int = 1) -> Change:
    """Return the change of pass@k between two evaluations of a group of tasks."""
    sample = paired_sample(before, after, k)
    number = len(sample.differences)
    return Change(
        before=pass_rate(before, k=k),
        after=pass_rate(after, k=k),
        delta=float(sample.change / number) if number else None,
        num_paired=number,
        num_gained=sum(difference > 0 for difference in sample.differences),
        num_lost=sum(difference < 0 for difference in sample.differences),
    )


def paired_groups(
    before: Sequence[TaskCount], after: Sequence[TaskCount], dimension: Dimension
) -> dict[str, tuple[list[TaskCount], list[TaskCount]]]:
    """Return the counts of both evaluations by group, sorted by its name, the unknown ones last.

    A task that both have stands in one group: that of the later evaluation if it is known there.
    """
    known = {
        (count.env_key, count.task_key): name
        for count in (*before, *after)
        if (name := count.group(dimension)) != UNKNOWN
    }
    groups: dict[str, tuple[list[TaskCount], list[TaskCount]]] = {}
    for side, counts in enumerate((before, after)):
        for count in counts:
            name = known.get((count.env_key, count.task_key), UNKNOWN)
            groups.setdefault(name, ([], []))[side].append(count)
    return {name: groups[name] for name in sorted(groups, key=lambda name: (name == UNKNOWN, name))}
