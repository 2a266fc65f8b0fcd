"""Reward spread of a group: one rule for advantages, filters, curriculum and metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-9
"""A score this close to its group's mean counts as equal to it: 0.2 differs from the mean of 0.1,
0.2 and 0.3 by 3e-17. No verifier's scores lie so close together on purpose."""


def deviations(scores: Sequence[float]) -> tuple[float, ...]:
    """Return each score minus the mean; exactly 0.0 for a score equal to the mean."""
    if not scores:
        return ()
    mean = math.fsum(scores) / len(scores)
    return tuple(0.0 if abs(score - mean) <= ROUNDING else score - mean for score in scores)


def differ(scores: Sequence[float]) -> bool:
    """Tell whether the scores differ, that is, the group carries signal for GRPO."""
    return any(deviations(scores))
