"""Expected share of rollout groups that carry signal, that is, whose members do not all agree.

GRPO learns nothing from a group that passes as a whole or fails as a whole. For a task with pass
probability p, a group of G rollouts does neither with probability 1 - p^G - (1-p)^G. Substituting
the measured pass rate for p is biased when a task has few rollouts; the share is counted instead,
over all groups that can be drawn from a task's rollouts (unbiased). No estimate is made for groups
larger than the tasks' numbers of rollouts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from hillclimb.stats.intervals import interval
from hillclimb.stats.pass_rate import TaskCount

GROUP_SIZES = tuple(range(2, 17))
"""Rollouts per prompt for which a report lists the share of groups with signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalShare:
    """Expected share of groups of one size whose members do not all agree, in [0, 1]."""

    group_size: int
    value: float | None
    """Mean over tasks; None where too few tasks have this many graded rollouts."""
    low: float
    """Lower end of the 95 % interval (0 when there is no value)."""
    high: float
    """Upper end of the 95 % interval (1 when there is no value)."""
    num_tasks: int
    """Tasks that entered the value."""
    method: Literal["counted", "unknown"]


def signal_of_task(num_graded: int, num_passed: int, group_size: int) -> float:
    """Unbiased estimate of 1 - p^G - (1-p)^G from n graded rollouts of which c passed.

    1 - [C(c, G) + C(n-c, G)] / C(n, G): the share of all groups of G that can be drawn from the n
    rollouts whose members do not all agree (as pass@k is the share of draws with a pass).

    Raises:
        ValueError: not 0 <= c <= n, or not 1 <= G <= n.
    """
    if not 0 <= num_passed <= num_graded or not 1 <= group_size <= num_graded:
        raise ValueError(
            f"groups of {group_size} from {num_graded} rollouts with {num_passed} passes are"
            " undefined"
        )
    alike = math.comb(num_passed, group_size) + math.comb(num_graded - num_passed, group_size)
    return 1.0 - alike / math.comb(num_graded, group_size)


def largest_counted_size(counts: Sequence[TaskCount]) -> int:
    """Largest group that can be counted: half of the tasks with two graded rollouts have as many.

    0 where no task has two graded rollouts.
    """
    sizes = sorted((c.num_graded for c in counts if c.num_graded >= 2), reverse=True)
    return sizes[(len(sizes) - 1) // 2] if sizes else 0


def signal_share(counts: Sequence[TaskCount], group_size: int) -> SignalShare:
    """Return the share of groups of this size with signal, counted over the tasks.

    Tasks with fewer graded rollouts are left out. Unknown above `largest_counted_size`.
    """
    if group_size > largest_counted_size(counts):
        return SignalShare(
            group_size=group_size, value=None, low=0.0, high=1.0, num_tasks=0, method="unknown"
        )
    usable = [count for count in counts if count.num_graded >= group_size]
    values = [signal_of_task(c.num_graded, c.num_passed, group_size) for c in usable]
    trials = sum(count.num_graded for count in usable) // group_size
    low, high = interval(values, max_trials=trials)
    return SignalShare(
        group_size=group_size,
        value=fmean(values),
        low=low,
        high=high,
        num_tasks=len(usable),
        method="counted",
    )
