"""Thoughts that take the place of acting, or repeat themselves."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.patterns.pattern import Evidence

MIN_SHARE = 0.75
MIN_TOKENS, MIN_CHARS = 512, 2048
MIN_THOUGHT_CHARS, MIN_THOUGHT_TURNS = 20, 3
MIN_SENTENCE_CHARS, MIN_SENTENCES = 40, 5
_END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")


def excessive_thinking(conversation: Conversation) -> Evidence | None:
    """Thoughts make up three quarters of what the policy sampled, and are long."""
    share = conversation.thinking_share
    turns = conversation.turns
    if share is None or share < MIN_SHARE:
        return None
    counts = [turn.num_thinking_tokens for turn in turns]
    are_known = all(turn.num_tokens is not None for turn in turns) and None not in counts
    unit, minimum = ("tokens", MIN_TOKENS) if are_known else ("characters", MIN_CHARS)
    amount = sum(c or 0 for c in counts) if are_known else sum(len(t.thinking) for t in turns)
    if amount < minimum:
        return None
    indices = tuple(index for index, turn in enumerate(turns) if turn.thinking)
    return Evidence.at(indices, f"{share:.0%} of what was sampled, {amount} {unit} of thought")


def thought_repetition(conversation: Conversation) -> Evidence | None:
    """One thought recurs over turns, or one sentence within the thoughts."""
    thoughts: dict[str, list[int]] = defaultdict(list)
    sentences: dict[str, list[int]] = defaultdict(list)
    for index, turn in enumerate(conversation.turns):
        thoughts[_normal(turn.thinking)].append(index)
        for sentence in _END_OF_SENTENCE.split(turn.thinking):
            sentences[_normal(sentence)].append(index)
    return _recurring(thoughts, MIN_THOUGHT_CHARS, MIN_THOUGHT_TURNS) or _recurring(
        sentences, MIN_SENTENCE_CHARS, MIN_SENTENCES
    )


def _recurring(places: Mapping[str, list[int]], min_chars: int, number: int) -> Evidence | None:
    for text, indices in places.items():
        if len(text) >= min_chars and len(indices) >= number:
            return Evidence.at(tuple(dict.fromkeys(indices)), text)
    return None


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
