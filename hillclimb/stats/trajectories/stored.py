"""Stored trajectories as conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Protocol

from pydantic import JsonValue

from hillclimb.protocol.payloads.results.rollouts import StoredConversation
from hillclimb.stats.trajectories.conversation import (
    Conversation,
    ConversationCall,
    ConversationTurn,
)
from hillclimb.stats.trajectories.response import split_response


class RecordedTurn(Protocol):
    """One call of a model turn, or a turn without calls, as the trainer records it."""

    @property
    def response(self) -> str:
        """The model turn's text; empty for its second and later calls."""
        ...

    @property
    def tool_name(self) -> str | None:
        """None: no call, or one that could not be read."""
        ...

    @property
    def tool_arguments(self) -> Mapping[str, JsonValue] | None:
        """Arguments of the call."""
        ...

    @property
    def observation(self) -> str | None:
        """The environment's answer."""
        ...

    @property
    def is_error(self) -> bool:
        """The answer is marked as an error."""
        ...

    @property
    def call_index(self) -> int:
        """Position among the calls of the model turn."""
        ...


class RecordedTokens(Protocol):
    """Numbers of tokens of one model turn, as the trainer records them."""

    @property
    def num_tokens(self) -> int:
        """Sampled tokens."""
        ...

    @property
    def num_thinking_tokens(self) -> int:
        """Those of them inside thoughts."""
        ...


def turns_of(
    recorded: Sequence[RecordedTurn], tokens: Sequence[RecordedTokens]
) -> tuple[ConversationTurn, ...]:
    """Return the model turns of recorded calls; `tokens` has one entry per model turn, or none."""
    groups: list[list[RecordedTurn]] = []
    for turn in recorded:
        if turn.call_index == 0 or not groups:
            groups.append([])
        groups[-1].append(turn)
    return tuple(
        _turn(group, counts) for group, counts in zip_longest(groups, tokens[: len(groups)])
    )


def conversation_of(stored: StoredConversation, *, pass_threshold: float) -> Conversation:
    """Return a stored trajectory as a conversation."""
    score = stored.outcome.score
    return Conversation(
        task_key=stored.task.key,
        env_key=stored.task.env_key,
        prompt=stored.task.prompt,
        env_variables=stored.task.env_variables,
        turns=turns_of(stored.turns, stored.turn_tokens),
        stop_reason=stored.stop_reason,
        score=score,
        passed=None if score is None else score >= pass_threshold,
    )


def read_call(turn: RecordedTurn) -> ConversationCall | None:
    """Return the call of a recorded turn; None where it has none, or was cut within one."""
    is_call = turn.tool_name is not None or turn.call_index > 0
    if not is_call and (turn.observation is None or not split_response(turn.response).has_call):
        return None
    return ConversationCall(
        name=turn.tool_name,
        arguments=turn.tool_arguments or {},
        answer=turn.observation,
        is_error=turn.is_error,
    )


def _turn(group: Sequence[RecordedTurn], tokens: RecordedTokens | None) -> ConversationTurn:
    parts = split_response(group[0].response)
    calls = tuple(call for turn in group if (call := read_call(turn)) is not None)
    return ConversationTurn(
        thinking=parts.thinking,
        text=parts.text,
        calls=calls,
        says_done=parts.says_done,
        reply=None if calls else group[0].observation,
        num_tokens=None if tokens is None else tokens.num_tokens,
        num_thinking_tokens=None if tokens is None else tokens.num_thinking_tokens,
    )
