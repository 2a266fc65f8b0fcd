"""Corrections for several tests that are displayed together."""

from __future__ import annotations

from collections.abc import Mapping


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Return adjusted p-values: rejecting those up to a level keeps the family's error below it.

    The step-down procedure of Holm 1979, *Scandinavian Journal of Statistics* 6, 65-70. It needs no
    independence: environments may share a policy and tasks.
    """
    adjusted: dict[str, float] = {}
    running = 0.0
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for rank, name in enumerate(ordered):
        running = max(running, min(1.0, (len(ordered) - rank) * p_values[name]))
        adjusted[name] = running
    return adjusted
