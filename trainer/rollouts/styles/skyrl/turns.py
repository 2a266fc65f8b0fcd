"""Reads a turn as SkyRL's Fleet environment does: one call, found by its tag wherever it stands.

Source: `tool_call_parser.py` and `FleetTaskEnv.step_async` (fleet-ai/SkyRL-Fleet `90062747`).
"""

from __future__ import annotations

import json
import math

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall
from hillclimb.environment.sanitize import sanitize_unicode
from trainer.rollouts.chat.parsing import MAX_DEPTH, MAX_INT_DIGITS, ParsedTurn
from trainer.rollouts.styles.base import EpisodeCrash

STOP_TEXT = "</tool_call>"
_DONE = ("<done>", "[done]")
_MAX_BRACES = 3
_TAGS = ("tool_call", "function_call")
_MAX_INT: int = 10**MAX_INT_DIGITS


def read_turn(text: str) -> ParsedTurn:
    """Return the first call of a turn, and whether the turn says that the task is done.

    Thoughts are text like any other: calls and `<done>` count there too, as `<done>` does in an
    argument. A call whose argument `action` is "done" says the same and is not made.

    Raises:
        EpisodeCrash: the arguments are no object, which ends the episode in SkyRL.
    """
    # The engine stops there; what follows was not sampled by SkyRL.
    before, tag, _ = text.partition(STOP_TEXT)
    seen = before + tag
    is_done = any(word in seen.lower() for word in _DONE)
    fields = _find_call(seen)
    if fields is None:
        return ParsedTurn(calls=(), done=is_done, answer=seen.strip())
    name, arguments = fields
    if not isinstance(arguments, dict):
        if arguments is not None and is_done:
            # SkyRL's client refuses them, and the episode ends with a grade.
            return ParsedTurn(calls=(), done=True, answer=seen.strip())
        if not is_done:
            raise EpisodeCrash(f"the arguments of {name} are no object")
        arguments = {}
    if not is_done and arguments.get("action") == "done":
        return ParsedTurn(calls=(), done=True, answer=seen.strip())
    call = ToolCall(name=name, arguments=arguments)
    return ParsedTurn(calls=(call,), done=is_done, answer=seen.strip())


def _find_call(text: str) -> tuple[str, JsonValue] | None:
    """Return name and arguments of the first call that can be read."""
    for tag in _TAGS:
        body = _body(text, tag)
        call = _read_object(body.strip()) if body is not None else None
        if call is None:
            continue
        name = call.get("name") or call.get("tool")
        if name:
            return str(name), call.get("arguments") or call.get("params", {})
    return None


def _body(text: str, tag: str) -> str | None:
    """Return the body of a call with its closing tag, else up to a special token or the end.

    Searched as plain text: a regex reads a turn that repeats the first tag once for each.
    """
    _, first, rest = text.partition(f"<{tag}>")
    if not first:
        return None
    body, last, _ = rest.partition(f"</{tag}>")
    return body if last else rest.partition("<|")[0]


def _read_object(text: str) -> dict[str, JsonValue] | None:
    """Return the JSON object of a body, with up to three closing braces added; None otherwise."""
    for missing in range(_MAX_BRACES + 1):
        try:
            value = json.loads(text + "}" * missing)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value if _can_be_stored(value) else None
    return None


def _can_be_stored(value: JsonValue) -> bool:
    """Tell whether a value may go over wires and into stores: finite, shallow, valid Unicode."""
    level: list[JsonValue] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[JsonValue] = []
        for item in level:
            if isinstance(item, list):
                inner += item
            elif isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif not _is_plain(item):
                return False
        if not inner:
            return True
        level = inner
    return False


def _is_plain(item: JsonValue) -> bool:
    if isinstance(item, float):
        return math.isfinite(item)
    if isinstance(item, int):
        return -_MAX_INT < item < _MAX_INT
    return not isinstance(item, str) or sanitize_unicode(item) == item
