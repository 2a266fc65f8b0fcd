"""Summaries of outcomes for events: counts and rates instead of the rows themselves.

The rows are in the outcomes table; an event stays small enough to stream to every client.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus
from hillclimb.stats.pass_rate import (
    Dimension,
    PassRate,
    TaskCount,
    count_tasks,
    group_counts,
    pass_rate,
)

BREAKDOWNS: Mapping[str, Dimension] = MappingProxyType(
    {
        "envs": Dimension.ENVIRONMENT,
        "difficulties": Dimension.DIFFICULTY,
        "modalities": Dimension.MODALITY,
    }
)
"""The breakdowns of an evaluation, by their keys."""


def summarise(
    outcomes: Sequence[OutcomeRow], *, pass_threshold: float, k: int | None = None
) -> dict[str, Any]:
    """Return `{"num_outcomes", "all": rate, "envs": {env_key: rate}, "stop_reasons"}`.

    A rate is the return value of `rate_facts`. `k` is the number of rollouts per task of an
    evaluation, which has all breakdowns; a training step has environments alone.
    """
    counts = count_tasks(outcomes, pass_threshold=pass_threshold)
    rates = breakdowns(counts, k or 1)
    return {
        "num_outcomes": len(outcomes),
        "all": rate_facts(counts, k or 1),
        **(rates if k is not None else {"envs": rates["envs"]}),
        "stop_reasons": count_stops(outcomes),
    }


def breakdowns(counts: Sequence[TaskCount], k: int) -> dict[str, dict[str, Any]]:
    """Return the rates by environment, difficulty and modality, under the keys of `BREAKDOWNS`."""
    return {
        key: {name: rate_facts(group, k) for name, group in group_counts(counts, each).items()}
        for key, each in BREAKDOWNS.items()
    }


def rate_facts(counts: Sequence[TaskCount], k: int = 1) -> dict[str, Any]:
    """Return pass@1 of the tasks as JSON, and for k above 1 pass@k, with intervals and bounds.

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
        "pass_at_n": None if k == 1 else _at_k(pass_rate(counts, k=k)),
    }


def count_stops(outcomes: Sequence[OutcomeRow]) -> dict[str, int]:
    """Count rollouts by stop reason; those without a grade by status."""
    counts: dict[str, int] = defaultdict(int)
    for row in outcomes:
        graded = row.status is OutcomeStatus.GRADED
        counts[row.stop_reason.value if graded else row.status.value] += 1
    return dict(sorted(counts.items()))


def _at_k(rate: PassRate) -> dict[str, Any]:
    return {
        "k": rate.k,
        "value": rate.value,
        "low": rate.low,
        "high": rate.high,
        "num_tasks": rate.num_tasks,
        "bound_if_failed": rate.bound_if_failed,
        "bound_if_passed": rate.bound_if_passed,
    }
