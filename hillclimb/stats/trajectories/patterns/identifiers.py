"""Identifiers in calls that the policy made up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.patterns.pattern import Evidence

_NAME = re.compile(
    r"(?:^|.*_)(?:id|ids)|.*[a-z0-9](?:Id|Ids|ID|IDs)|.*_(?:key|ref|code|number|uuid)|uuid"
)
"""Names of arguments whose values are identifiers: `id`, `issue_id`, `issueId`, `room_ids`."""


def hallucinated_parameter(conversation: Conversation) -> Evidence | None:
    """A call names an identifier that occurs in nothing that the policy has seen before."""
    seen = [conversation.prompt, *conversation.env_variables, *conversation.env_variables.values()]
    text = "\n".join(seen).casefold()
    for index, turn in enumerate(conversation.turns):
        for call in turn.calls:
            for name, value in _identifiers(call.arguments):
                if not _occurs(value.casefold(), text):
                    return Evidence.at((index,), f"{call.name}: {name} {value}")
            text = f"{text}\n{(call.answer or '').casefold()}"
        text = f"{text}\n{(turn.reply or '').casefold()}"
    return None


def _identifiers(value: JsonValue | Mapping[str, JsonValue]) -> Iterator[tuple[str, str]]:
    """Yield the identifiers of arguments with their names, at any depth."""
    if isinstance(value, Mapping):
        for name, content in value.items():
            if _NAME.fullmatch(name):
                items = content if isinstance(content, list) else [content]
                yield from ((name, text) for text in map(_as_text, items) if text)
            if isinstance(content, Mapping | list):
                yield from _identifiers(content)
    elif isinstance(value, list):
        for item in value:
            yield from _identifiers(item)


def _as_text(value: JsonValue) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    return str(value).strip()


def _occurs(value: str, text: str) -> bool:
    """Tell whether a value occurs as a whole word, not inside a longer identifier."""
    start = text.find(value)
    while start >= 0:
        end = start + len(value)
        before, after = text[start - 1 : start], text[end : end + 1]
        if not _continues(before, text[start - 2 : start - 1]) and not _continues(
            after, text[end + 1 : end + 2]
        ):
            return True
        start = text.find(value, start + 1)
    return False


def _continues(character: str, beyond: str) -> bool:
    """Tell whether an identifier goes on: by a letter or digit, or by a hyphen or so before one."""
    if character.isalnum() or character == "_":
        return True
    return character in ("-", ".", "/") and character != "" and beyond.isalnum()
