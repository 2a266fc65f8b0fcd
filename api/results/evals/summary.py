"""Summaries of outcomes for events: counts and rates instead of the rows themselves.

The rows are in the outcomes table; an event stays small enough to stream to every client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus
from hillclimb.stats.pass_rate import TaskCount, count_tasks, pass_rate


def summarise(outcomes: Sequence[OutcomeRow], *, pass_threshold: float) -> dict[str, Any]:
    """Return `{"num_outcomes", "all": rate, "envs": {env_key: rate}, "stop_reasons"}`.

    A rate is the return value of `rate_facts`; `envs` is sorted by key.
    """
    counts = count_tasks(outcomes, pass_threshold=pass_threshold)
    return {
        "num_outcomes": len(outcomes),
        "all": rate_facts(counts),
        "envs": {key: rate_facts(group) for key, group in by_env(counts).items()},
        "stop_reasons": count_stops(outcomes),
    }


def rate_facts(counts: Sequence[TaskCount]) -> dict[str, Any]:
    """Return pass@1 of the tasks as JSON, with n, coverage, interval and bounds.

    Shares are in [0, 1]; `n` counts graded rollouts and `passes` those that passed.
    """
    rate = pass_rate(counts)
    return {
        "pass_at_1": rate.value,
        "low": rate.low,
        "high": rate.high,
        "n": rate.num_graded,
        "passes": sum(count.num_passed for count in counts),
        "num_tasks": rate.num_tasks,
        "num_rollouts": rate.num_rollouts,
        "coverage": rate.coverage,
        "bound_if_failed": rate.bound_if_failed,
        "bound_if_passed": rate.bound_if_passed,
    }


def by_env(counts: Sequence[TaskCount]) -> dict[str, list[TaskCount]]:
    """Return the counts grouped by environment, sorted by its key."""
    groups: dict[str, list[TaskCount]] = defaultdict(list)
    for count in counts:
        groups[count.env_key].append(count)
    return dict(sorted(groups.items()))


def count_stops(outcomes: Sequence[OutcomeRow]) -> dict[str, int]:
    """Count rollouts by stop reason; those without a grade by status."""
    counts: dict[str, int] = defaultdict(int)
    for row in outcomes:
        graded = row.status is OutcomeStatus.GRADED
        counts[row.stop_reason.value if graded else row.status.value] += 1
    return dict(sorted(counts.items()))
