"""Parses the text of one turn into tool calls: tolerates truncation and nothing else.

An unreadable call becomes a `MalformedCall` whose text the agent gets as an error observation. No
text raises, and the time is linear in the text. Four rules: tags inside a thought do not count;
every call of a turn is returned; `<done>` counts only outside calls and thoughts; a repair never
changes a value. Only missing final braces are added, never after a number (which could continue),
inside a string, or before the arguments.

`[done]` does not end an episode: agents write it into their checklists. The prompt asks for
`<done>`.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from hillclimb.environment.base import ToolCall

MAX_MISSING_BRACES = 3
MAX_DEPTH = 32
"""Nesting of a call's JSON; deeper input is junk and would break serializers downstream."""
MAX_INT_DIGITS = 18
"""Integers stay within 64 bits, so every store and wire on the way can hold them."""

_MARK = re.compile(r"<(tool_call|function_call)>|</?think>|<done\s*/?>", re.IGNORECASE)
_OPENING = re.compile(r"<(?:tool_call|function_call)>", re.IGNORECASE)
_CLOSE_TAGS = {
    name: re.compile(rf"</{name}>", re.IGNORECASE) for name in ("tool_call", "function_call")
}
_END_OF_THOUGHT = re.compile(r"</think>", re.IGNORECASE)
_SPACE = re.compile(r"\s*")
_WHOLE_VALUE = ('"', "}", "]", "true", "false", "null")
"""How a body ends after a value that more text could not have changed."""
_FIRST_WINDOW = 512
_LONGEST_TOKEN = 16
"""Characters that the decoder may have to see beyond the place where it finds a fault."""
_UNTERMINATED = "Unterminated string"
_SPELLINGS = {"name": ("name", "tool"), "arguments": ("arguments", "params")}
_IGNORED_KEYS = frozenset({"id", "type"})
"""Other formats put these beside a call; they change nothing about it."""


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
    thoughts: tuple[tuple[int, int], ...] = field(default=(), compare=False)
    """Begin and end of each thought in the text, tags included; those after `<done>` too. Turns
    that differ in thoughts alone are equal: the loop does the same with both."""


@dataclass(slots=True)
class _TurnParts:
    """Text and calls read so far; nothing is added after `<done>`."""

    calls: list[ToolCall | MalformedCall] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)
    done: bool = False
    thoughts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, *, text: str = "", call: ToolCall | MalformedCall | None = None) -> None:
        if self.done:
            return
        self.prose.append(text)
        if call is not None:
            self.calls.append(call)

    def parsed(self) -> ParsedTurn:
        answer = "".join(self.prose).strip()
        return ParsedTurn(
            calls=tuple(self.calls), done=self.done, answer=answer, thoughts=tuple(self.thoughts)
        )


@dataclass(frozen=True, slots=True)
class _Refused:
    """Placeholder for a value that JSON allows and this parser refuses."""

    why: str


@dataclass(frozen=True, slots=True)
class JsonFault:
    """Position in the turn where the JSON decoder failed, and its message."""

    position: int
    message: str


CallReader = Callable[[str, int, re.Pattern[str]], tuple[ToolCall | MalformedCall, int]]
"""Reads the call whose body begins at a place; returns it and the place to continue from."""


def parse_turn(text: str, read: CallReader | None = None) -> ParsedTurn:
    """Read one turn. Never raises; whatever follows the first `<done>` is ignored.

    A `</think>` without an opening tag ends a thought that the generation prompt opened: all text
    before it is thought. `read` reads what is between the tags of a call; None: JSON.

    Example:
        parse_turn('<tool_call>{"name": "search", "arguments": {"city": "Brno"}}').calls
        == (ToolCall(name="search", arguments={"city": "Brno"}),)
    """
    turn_parts, has_thought, position = _TurnParts(), False, 0
    read = read or _read_call
    while (mark := _MARK.search(text, position)) is not None:
        turn_parts.add(text=text[position : mark.start()])
        position, tag = mark.end(), mark[0].lower()
        if mark[1] is not None:
            call, position = read(text, position, _CLOSE_TAGS[mark[1].lower()])
            turn_parts.add(call=call)
        elif tag == "<think>":
            has_thought, position = True, _end_of_thought(text, position)
            turn_parts.thoughts.append((mark.start(), position))
        elif tag == "</think>":
            if not has_thought:
                turn_parts, has_thought = _TurnParts(thoughts=[(0, position)]), True
        else:
            turn_parts.done = True
    turn_parts.add(text=text[position:])
    return turn_parts.parsed()


def _end_of_thought(text: str, start: int) -> int:
    """Return the end of the thought at `start`; an unclosed thought extends to the turn's end."""
    closing = _END_OF_THOUGHT.search(text, start)
    return closing.end() if closing else len(text)


def _read_call(
    text: str, start: int, close_tag: re.Pattern[str]
) -> tuple[ToolCall | MalformedCall, int]:
    """Read the call whose body begins at `start`; return it and the position to continue from."""
    start = _skip_space(text, start)
    decoded = decode_value(text, start)
    if isinstance(decoded, JsonFault):
        return _repair_call(text, start, close_tag, decoded)
    value, json_end = decoded
    closing = close_tag.match(text, _skip_space(text, json_end))
    if closing:
        return as_call(value), closing.end()
    closing = close_tag.search(text, json_end, _next_mark(text, json_end))
    if closing:
        problem = "something follows the JSON object of the tool call: write one object, no more"
        return MalformedCall(problem=problem), closing.end()
    return as_call(value), json_end


def decode_value(text: str, start: int) -> tuple[object, int] | JsonFault:
    """Decode the JSON value at `start`; return it and its end.

    The decoder gets a window, which grows while its end may cause the fault: a failing decoder
    takes time proportional to the whole text that it gets.
    """
    size = _FIRST_WINDOW
    while True:
        window = text[start : start + size]
        is_whole = start + size >= len(text)
        try:
            value, end = _DECODER.raw_decode(window)
        except json.JSONDecodeError as error:
            is_cut = error.msg.startswith(_UNTERMINATED) or error.pos > size - _LONGEST_TOKEN
            if is_whole or not is_cut:
                return JsonFault(start + error.pos, error.msg)
        except RecursionError:
            return JsonFault(start, "nested too deeply")
        else:
            if is_whole or end < size:
                return value, start + end
        size *= 4


def _repair_call(
    text: str, start: int, close_tag: re.Pattern[str], fault: JsonFault
) -> tuple[ToolCall | MalformedCall, int]:
    """Read a body that is not valid JSON by adding up to `MAX_MISSING_BRACES` final braces."""
    end, resume = _body(text, close_tag, fault)
    body = text[start:end].rstrip()
    if fault.position >= start + len(body) and body.endswith(_WHOLE_VALUE):
        for missing in range(1, MAX_MISSING_BRACES + 1):
            try:
                value = _DECODER.decode(body + "}" * missing)
            except (ValueError, RecursionError):
                continue
            if _has_arguments(value):
                return as_call(value), resume
    problem = f"the tool call is not valid JSON ({_reason(body, fault)})"
    return MalformedCall(problem=problem), resume


def _body(text: str, close_tag: re.Pattern[str], fault: JsonFault) -> tuple[int, int]:
    """End of an unreadable body, and the position to continue from.

    Tags before the fault are inside strings. The body extends to its close tag, if that comes
    before another call, else to the next mark; an unterminated string extends to the turn's end.
    """
    opening = _OPENING.search(text, fault.position)
    limit = opening.start() if opening else len(text)
    closing = close_tag.search(text, fault.position, limit)
    if closing:
        return closing.start(), closing.end()
    if fault.message.startswith(_UNTERMINATED):
        return len(text), len(text)
    end = _next_mark(text, fault.position)
    return end, end


def end_of_unread(text: str, start: int, close_tag: re.Pattern[str]) -> int:
    """Return where to continue after a call that cannot be read: its close tag, or the next mark.

    Both come before the next call.
    """
    opening = _OPENING.search(text, start)
    closing = close_tag.search(text, start, opening.start() if opening else len(text))
    return closing.end() if closing else _next_mark(text, start)


def _has_arguments(value: object) -> bool:
    return isinstance(value, dict) and any(key in value for key in _SPELLINGS["arguments"])


def as_call(value: object) -> ToolCall | MalformedCall:
    """Check the shape of a decoded body; `tool` and `params` are accepted as older spellings."""
    problem = _problem_with(value)
    if problem is not None or not isinstance(value, dict):
        return MalformedCall(problem=problem or "the tool call must be a JSON object")
    name, arguments = (_spelled(value, field) for field in ("name", "arguments"))
    if isinstance(arguments, str):
        try:
            arguments = _DECODER.decode(arguments)
        except (ValueError, RecursionError):
            return MalformedCall(problem='"arguments" must be a JSON object')
        problem = _problem_with(arguments)
    if problem is not None:
        return MalformedCall(problem=problem)
    if not isinstance(name, str) or not name.strip():
        return MalformedCall(problem='the tool call needs a "name"')
    if not isinstance(arguments, dict | None):
        return MalformedCall(problem='"arguments" must be a JSON object')
    strange = _strange_key(value)
    if strange is not None:
        return MalformedCall(
            problem=f'the tool call holds {strange} beside "name" and "arguments": put it inside'
            ' "arguments"'
        )
    return ToolCall(name=name.strip(), arguments=arguments or {})


def _spelled(value: dict[str, object], field_name: str) -> object:
    """Value of a field under any of its spellings, or None."""
    return next((value[key] for key in _SPELLINGS[field_name] if key in value), None)


def _strange_key(value: dict[str, object]) -> str | None:
    """Return an unknown key, or a second spelling of a key: neither may be dropped silently."""
    unused = set(value) - _IGNORED_KEYS
    for spellings in _SPELLINGS.values():
        unused.discard(next((key for key in spellings if key in value), ""))
    return _quoted(min(unused)) if unused else None


def _problem_with(value: object) -> str | None:
    """Return why a decoded value is refused: its depth, a number, a key, or invalid Unicode."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            if isinstance(item, _Refused):
                return f"the tool call is not readable ({item.why})"
            if isinstance(item, str) and not _is_encodable(item):
                return "the tool call is not valid Unicode"
            if isinstance(item, list):
                inner += item
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
        if not inner:
            return None
        level = inner
    return "the tool call is nested too deeply"


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _next_mark(text: str, position: int) -> int:
    mark = _MARK.search(text, position)
    return mark.start() if mark else len(text)


def _reason(body: str, fault: JsonFault) -> str:
    """Return the reason why a body is not JSON, with the remedy for the agent."""
    if body.startswith("```"):
        return "it is in a code fence: write the JSON object alone between the tags"
    if body.startswith(("{'", "'")):
        return "names and text need double quotes"
    if fault.message.startswith("Invalid control character"):
        return "a line break or tab in text is written \\n or \\t"
    return fault.message.lower()


def _quoted(name: str) -> str:
    """Return a key as printable JSON, at most 40 characters of it."""
    return json.dumps(name[:40])


def _parse_int(digits: str) -> int | _Refused:
    if len(digits.lstrip("-")) > MAX_INT_DIGITS:
        return _Refused("an integer is too long")
    return int(digits)


def _parse_float(digits: str) -> float | _Refused:
    number = float(digits)
    return number if math.isfinite(number) else _Refused("a number is too large")


def _parse_object(pairs: Sequence[tuple[str, object]]) -> dict[str, object] | _Refused:
    """Return the object; refuse one with a repeated key, whose value is ambiguous."""
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    times = Counter(key for key, _ in pairs)
    return _Refused(f"the key {_quoted(times.most_common(1)[0][0])} occurs twice")


_DECODER = json.JSONDecoder(
    parse_int=_parse_int,
    parse_float=_parse_float,
    parse_constant=lambda name: _Refused(f"{name} is not JSON"),
    object_pairs_hook=_parse_object,
)
