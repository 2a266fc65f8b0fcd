"""The state of a guard's condition, with its measurement."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hillclimb.protocol.payloads.events import GuardEvidence


class Condition(StrEnum):
    """State of a condition; an armed guard trips at `MET`, a tripped one is armed at `CLEAR`."""

    MET = "met"
    CLEAR = "clear"
    BETWEEN = "between"
    """Neither: too little is measured, or the value is so near its limit that it would flutter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCheck:
    """One evaluation of a guard's condition."""

    condition: Condition
    evidence: GuardEvidence
    needs: str
    """What it would take to trip, in words."""


def condition_of(*, is_met: bool, is_clear: bool) -> Condition:
    """Return the state from its two tests; `is_met` wins."""
    if is_met:
        return Condition.MET
    return Condition.CLEAR if is_clear else Condition.BETWEEN
