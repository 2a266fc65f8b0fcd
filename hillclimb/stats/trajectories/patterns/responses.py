"""Calls that the environment did not answer."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation, ConversationCall
from hillclimb.stats.trajectories.patterns.pattern import Evidence

_ENDED = (StopReason.ENV_ENDED, StopReason.INFRA_ERROR)


def is_answered(call: ConversationCall) -> bool:
    """Tell whether a call has an answer; a blank one is none, `[]` and `null` are answers."""
    return call.answer is not None and bool(call.answer.strip())


def no_environment_response(conversation: Conversation) -> Evidence | None:
    """At least half of the calls were not answered."""
    placed = [(index, call) for index, turn in enumerate(conversation.turns) for call in turn.calls]
    silent = [(index, call) for index, call in placed if not is_answered(call)]
    if not silent or 2 * len(silent) < len(placed):
        return None
    is_last_alone = len(silent) == 1 and silent[0] == placed[-1]
    if is_last_alone and conversation.stop_reason in _ENDED:
        return None
    quote = f"{len(silent)} of {len(placed)} calls have no answer, first {silent[0][1].name}"
    return Evidence.at(tuple(dict.fromkeys(index for index, _ in silent)), quote)
