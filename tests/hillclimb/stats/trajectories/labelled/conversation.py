"""A conversation with the patterns that its script knows to be in it."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.stats.trajectories.conversation import Conversation


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledConversation:
    """A scripted rollout and its labels.

    `name` is `family/kind/env_key/number`; the family is the pattern that the script shows or
    nearly shows, else `ordinary`.
    """

    name: str
    conversation: Conversation
    patterns: frozenset[str]
    """All patterns that are present, those beside the scripted one included."""
    near_miss_of: str | None = None
    """The pattern that a careless detector would see."""

    @property
    def kind(self) -> str:
        """The way in which the script shows its pattern, or nearly does."""
        return self.name.split("/")[1]
