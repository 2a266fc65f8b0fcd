"""Plausible token counts: a word of up to eight letters, a digit or a sign is a token."""

from __future__ import annotations

import re

from hillclimb.stats.trajectories.conversation import ConversationCall

_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_")
_LETTERS = 8


def count(text: str) -> int:
    """Return the number of tokens of a text."""
    return sum(-(-len(piece) // _LETTERS) for piece in _PIECES.findall(text))


def count_call(call: ConversationCall) -> int:
    """Return the number of tokens of a call with its tags."""
    return 2 + count(f'{{"name": "{call.name}", "arguments": {dict(call.arguments)}}}')
