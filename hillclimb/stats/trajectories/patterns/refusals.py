"""Calls that the environment refused, by kind of refusal."""

from __future__ import annotations

from hillclimb.stats.trajectories.conversation import Conversation, ConversationCall
from hillclimb.stats.trajectories.errors.kinds import ToolErrorKind, classify
from hillclimb.stats.trajectories.patterns.pattern import Detect, Evidence


def refused_as(*kinds: ToolErrorKind) -> Detect:
    """Return the detector of calls that were refused for one of these reasons."""

    def detect(conversation: Conversation) -> Evidence | None:
        for index, turn in enumerate(conversation.turns):
            for call in turn.calls:
                if kind_of(call) in kinds:
                    return Evidence.at((index,), f"{call.name}: {call.answer or 'unreadable'}")
        return None

    return detect


def kind_of(call: ConversationCall) -> ToolErrorKind | None:
    """Return the kind of error of a call; None for a success and for no answer."""
    if call.name is None:
        return ToolErrorKind.UNREADABLE_CALL
    return classify(call.answer, is_error=call.is_error)
