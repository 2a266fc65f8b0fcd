"""From the text of one turn to tool calls: forgiving about truncation, strict about the rest.

What cannot be read becomes a `MalformedCall` whose text the agent sees as an error observation;
nothing a policy can write raises. Three rules that earlier loops got wrong: tags inside a thought
do not count, every call of a turn is returned, and `<done>` counts only outside calls and thoughts.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass

from trainer.envs.base import ToolCall

MAX_MISSING_BRACES = 3
MAX_DEPTH = 32
"""Nesting of a call's JSON; deeper input is junk and would break serializers downstream."""
MAX_INT_DIGITS = 18
"""Integers stay within 64 bits, so every store and wire on the way can hold them."""

_MARK = re.compile(r"<(tool_call|function_call|think)>|<done>", re.IGNORECASE)
_SPACE = re.compile(r"\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedCall:
    """A call that cannot be read; `problem` is the text of the error observation."""

    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedTurn:
    """One turn as the loop sees it. `done` ends the episode after `calls` were executed."""

    calls: tuple[ToolCall | MalformedCall, ...]
    done: bool
    answer: str
    """The text outside thoughts, calls and `<done>`, stripped."""


class _Unreadable(ValueError):
    """A value JSON allows and we do not."""


def parse_turn(text: str) -> ParsedTurn:
    """Read one turn. Never raises; whatever follows the first `<done>` is ignored.

    Example:
        parse_turn('<tool_call>{"name": "search", "arguments": {"city": "Brno"}}').calls
        == (ToolCall(name="search", arguments={"city": "Brno"}),)
    """
    calls: list[ToolCall | MalformedCall] = []
    prose: list[str] = []
    position = _end_of_opened_thought(text)
    while (mark := _MARK.search(text, position)) is not None:
        prose.append(text[position : mark.start()])
        if mark[1] is None:
            return _parsed(calls, prose, done=True)
        if mark[1].lower() == "think":
            position = _end_of_thought(text, mark.end())
        else:
            call, position = _read_call(text, mark)
            calls.append(call)
    prose.append(text[position:])
    return _parsed(calls, prose, done=False)


def _parsed(calls: list[ToolCall | MalformedCall], prose: list[str], *, done: bool) -> ParsedTurn:
    return ParsedTurn(calls=tuple(calls), done=done, answer="".join(prose).strip())


def _end_of_opened_thought(text: str) -> int:
    """Where speech starts when the generation prompt, not the turn, opened a thought."""
    closing, opening = text.find("</think>"), text.find("<think>")
    if closing < 0 or 0 <= opening < closing:
        return 0
    return closing + len("</think>")


def _end_of_thought(text: str, start: int) -> int:
    """The end of the thought begun at `start`; an unclosed one hides the rest of the turn."""
    closing = text.find("</think>", start)
    return len(text) if closing < 0 else closing + len("</think>")


def _read_call(text: str, opening: re.Match[str]) -> tuple[ToolCall | MalformedCall, int]:
    """The call that starts at `opening`, and where to go on reading."""
    close_tag = f"</{opening[1].lower()}>"
    start = _skip_space(text, opening.end())
    try:
        value, json_end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return _mend_call(text, start, close_tag, error)
    after = _skip_space(text, json_end)
    if text.startswith(close_tag, after):
        return _as_call(value), after + len(close_tag)
    closing = text.find(close_tag, json_end, _next_mark(text, json_end))
    if closing >= 0:
        problem = "the tool call holds more than one JSON object"
        return MalformedCall(problem=problem), closing + len(close_tag)
    return _as_call(value), json_end


def _mend_call(
    text: str, start: int, close_tag: str, error: Exception
) -> tuple[ToolCall | MalformedCall, int]:
    """Read a body that is no JSON as it stands: only missing final braces are supplied."""
    end = _next_mark(text, start)
    closing = text.find(close_tag, start, end)
    resume = end if closing < 0 else closing + len(close_tag)
    body = text[start : end if closing < 0 else closing].rstrip()
    if isinstance(error, json.JSONDecodeError):
        for missing in range(1, MAX_MISSING_BRACES + 1):
            try:
                return _as_call(_DECODER.decode(body + "}" * missing)), resume
            except (ValueError, RecursionError):
                continue
    return MalformedCall(problem=f"the tool call is not valid JSON ({_reason(error)})"), resume


def _as_call(value: object) -> ToolCall | MalformedCall:
    """Check the shape of a decoded body; `tool` and `params` are accepted as older spellings."""
    if not isinstance(value, dict):
        return MalformedCall(problem="the tool call must be a JSON object")
    name = value.get("name", value.get("tool"))
    arguments = value.get("arguments", value.get("params"))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            return MalformedCall(problem='"arguments" must be a JSON object')
    if not isinstance(name, str) or not name.strip():
        return MalformedCall(problem='the tool call needs a "name"')
    if not isinstance(arguments, dict | None):
        return MalformedCall(problem='"arguments" must be a JSON object')
    if not _is_plain([name, arguments]):
        return MalformedCall(problem="the tool call is nested too deeply or is not valid Unicode")
    return ToolCall(name=name.strip(), arguments=arguments or {})


def _is_plain(value: object) -> bool:
    """True when nesting stays within `MAX_DEPTH` and every string can be encoded."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            if isinstance(item, str) and not _encodable(item):
                return False
            if isinstance(item, list):
                inner += item
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
        if not inner:
            return True
        level = inner
    return False


def _encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _next_mark(text: str, position: int) -> int:
    mark = _MARK.search(text, position)
    return mark.start() if mark else len(text)


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return error.msg.lower()
    return str(error) if isinstance(error, _Unreadable) else "nested too deeply"


def _parse_int(digits: str) -> int:
    if len(digits.lstrip("-")) > MAX_INT_DIGITS:
        raise _Unreadable("an integer is too long")
    return int(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _Unreadable("a number is too large")
    return number


def _reject_constant(name: str) -> float:
    raise _Unreadable(f"{name} is not JSON")


_DECODER = json.JSONDecoder(
    parse_int=_parse_int, parse_float=_parse_float, parse_constant=_reject_constant
)
