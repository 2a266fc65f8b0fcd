"""Facts about a rollout that its script knows."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

from tests.hillclimb.stats.trajectories.labelled.agent.thought import Thought


class Refusal(Enum):
    """Reason for which the environment refuses a call."""

    ARGUMENTS = "argument_validation"
    PERMISSION = "authorization"
    MISSING = "not_found"
    OTHER = "other"
    """The state of a thing, a limit of requests, a fault of the platform."""


class Says(Enum):
    """Claim of a turn's text about the task."""

    COMPLETED = auto()
    FAILED = auto()
    """Failure, doubt, or only a part."""
    NOTHING = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFacts:
    """One call as its script meant it."""

    answered: bool
    refusal: Refusal | None = None
    invents: bool = False
    """An identifier is made up or guessed: the policy has not seen it."""
    is_readable: bool = True

    @property
    def succeeded(self) -> bool:
        return self.answered and self.refusal is None


@dataclass(slots=True)
class Facts:
    """Everything that a script knows of its rollout."""

    calls: list[CallFacts] = field(default_factory=list)
    thoughts: list[Thought] = field(default_factory=list)
    says: Says = Says.NOTHING
    """Of the last turn."""
