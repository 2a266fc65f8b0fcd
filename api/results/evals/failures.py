"""Causes of failed rollouts: one per rollout, with its wording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from api.results.evals.store import FailureGroup
from hillclimb.protocol.outcomes import StopReason

MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "repeated_calls": "repeated the same tool call until the turn limit",
        "no_done": "never said it was done before the turn limit",
        "wrong_state": "said it was done, but the final state was wrong",
        "turn_too_long": "one turn used up its token limit",
        "context_full": "the conversation no longer fitted the model's input",
        "too_slow": "used up the trajectory's time",
    }
)
"""Each cause with a phrase that completes "the policy …"."""

_CAUSES: Mapping[str, str] = MappingProxyType(
    {
        StopReason.DONE: "wrong_state",
        StopReason.ENV_ENDED: "wrong_state",
        StopReason.MAX_TURNS: "no_done",
        StopReason.MAX_GENERATE_LENGTH: "turn_too_long",
        StopReason.MAX_INPUT_LENGTH: "context_full",
        StopReason.POLICY_DEADLINE: "too_slow",
    }
)


def cause_of(stop_reason: str, *, has_repeated_calls: bool) -> str:
    """Return the cause of a graded rollout that did not pass.

    Repetition is the cause only of a rollout that reached the turn limit: one that repeated a call
    and then reported to be done failed by its final state.
    """
    cause = _CAUSES.get(stop_reason, "wrong_state")
    return "repeated_calls" if cause == "no_done" and has_repeated_calls else cause


def failure_table(
    before: Iterable[FailureGroup], after: Iterable[FailureGroup]
) -> dict[str, dict[str, Any]]:
    """Return `{cause: {"meaning", "before", "after"}}`, ordered by frequency before."""
    old, new = _count(before), _count(after)
    causes = sorted(set(old) | set(new), key=lambda cause: (-old[cause], -new[cause], cause))
    return {
        cause: {"meaning": MEANINGS[cause], "before": old[cause], "after": new[cause]}
        for cause in causes
    }


def _count(groups: Iterable[FailureGroup]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for group in groups:
        cause = cause_of(group.stop_reason, has_repeated_calls=group.has_repeated_calls)
        counts[cause] += group.count
    return counts
