"""Tokens that a model turn spent on thought, tags included."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.parsing import parse_turn


def count_thinking_tokens(token_ids: Sequence[int], chat: Chat) -> int:
    """Return how many of a turn's sampled tokens lie within thoughts, as the parser reads them.

    A token that spans the border of a thought counts for the side on which its text begins; an
    end marker after an unclosed thought counts for neither.
    """
    text = chat.decode(token_ids)
    if "think>" not in text.lower():
        return 0
    return sum(
        _first_token_at(end, token_ids, chat) - _first_token_at(start, token_ids, chat)
        for start, end in parse_turn(text).thoughts
    )


def _first_token_at(position: int, token_ids: Sequence[int], chat: Chat) -> int:
    """Return the index of the first token whose text begins at `position` or after it."""
    if position == 0:
        return 0
    lengths = range(len(token_ids) + 1)
    return bisect_left(lengths, position, key=lambda length: len(chat.decode(token_ids[:length])))
