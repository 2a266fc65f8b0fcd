"""Rollouts that do not come to an end of their own."""

from __future__ import annotations

from itertools import takewhile

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.patterns.pattern import Evidence

MIN_IDLE_TURNS = 2


def max_turns(conversation: Conversation) -> Evidence | None:
    """The turn limit stopped the rollout."""
    if conversation.stop_reason is not StopReason.MAX_TURNS:
        return None
    return Evidence.at((), f"stopped after {len(conversation.turns)} turns")


def context_overflow(conversation: Conversation) -> Evidence | None:
    """The conversation no longer fitted the model's input."""
    if conversation.stop_reason is not StopReason.MAX_INPUT_LENGTH:
        return None
    return Evidence.at((), f"no room after {len(conversation.turns)} turns")


def cannot_signal_done(conversation: Conversation) -> Evidence | None:
    """The last turns contain neither a call nor `<done>`."""
    turns = conversation.turns
    idle = list(takewhile(lambda turn: not turn.calls and not turn.says_done, reversed(turns)))
    if conversation.stop_reason is StopReason.DONE or len(idle) < MIN_IDLE_TURNS:
        return None
    indices = tuple(range(len(turns) - len(idle), len(turns)))
    return Evidence.at(indices, idle[0].text or f"{len(idle)} turns without a call")
