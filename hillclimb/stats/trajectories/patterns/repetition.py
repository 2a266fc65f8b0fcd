"""Calls that were made again and again and brought nothing new."""

from __future__ import annotations

import json
from collections import defaultdict

from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.patterns.pattern import Evidence

MIN_CALLS = 3


def tool_repetition(conversation: Conversation) -> Evidence | None:
    """One call was made three times with the same answer, in a row or not."""
    places: dict[tuple[str, str, str | None], list[int]] = defaultdict(list)
    for index, turn in enumerate(conversation.turns):
        for call in turn.calls:
            if call.name is not None:
                arguments = json.dumps(dict(call.arguments), sort_keys=True, ensure_ascii=False)
                answer = (call.answer or "").strip() or None
                places[call.name, arguments, answer].append(index)
    for (name, arguments, _), indices in places.items():
        if len(indices) >= MIN_CALLS:
            turns = tuple(dict.fromkeys(indices))
            return Evidence.at(turns, f"{len(indices)} times {name} {arguments}")
    return None
