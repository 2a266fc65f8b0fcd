"""A failure pattern: name, severity, definition and detector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hillclimb.stats.trajectories.conversation import Conversation

MAX_QUOTE = 200


class Severity(StrEnum):
    """Severity of a pattern, as in the team's baseline analysis."""

    CRITICAL = "critical"
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence of a pattern in one conversation."""

    turns: tuple[int, ...]
    """Indices of the turns that show it, from 0; empty where the end of the rollout shows it."""
    quote: str
    """What shows it, at most `MAX_QUOTE` characters."""

    @classmethod
    def at(cls, turns: tuple[int, ...], quote: str) -> Evidence:
        """Return a finding whose quotation is cut to its limit."""
        text = " ".join(quote.split())
        return cls(turns=turns, quote=text if len(text) <= MAX_QUOTE else f"{text[:199]}…")


Detect = Callable[[Conversation], Evidence | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A failure pattern. Patterns are not exclusive, and a success may show one too."""

    name: str
    severity: Severity
    definition: str
    """When a conversation shows it, in words."""
    detect: Detect
