"""Whether scores of one prompt differ: one rule for advantages, filters, curriculum and metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence

ROUNDING = 1e-9
"""A score this close to its group's mean is at the mean: 0.2 is off that of 0.1, 0.2 and 0.3 by
3e-17, and 0.1 + 0.2 is not 0.3. No verifier's scores are meant to lie so close together."""


def deviations(scores: Sequence[float]) -> tuple[float, ...]:
    """Each score minus the mean of all; exactly 0.0 for a score that is at the mean."""
    if not scores:
        return ()
    mean = math.fsum(scores) / len(scores)
    return tuple(0.0 if abs(score - mean) <= ROUNDING else score - mean for score in scores)


def differ(scores: Sequence[float]) -> bool:
    """Tell whether the scores have a contrast: GRPO learns from them only then."""
    return any(deviations(scores))
