"""Reads calls whose arguments have tags of their own, as Qwen3.5's chat template writes them.

<tool_call>
<function=search>
<parameter=city>
Brno
</parameter>
</function>
</tool_call>

A value has no quotes, so that only the tool's schema tells a number from a text that looks like
one. A value of no declared type, and one that the schema does not know, is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType

from pydantic import JsonValue

from hillclimb.environment.base import ToolCall, ToolSpec
from trainer.rollouts.chat.parsing import (
    JsonFault,
    MalformedCall,
    ParsedTurn,
    as_call,
    decode_value,
    end_of_unread,
    parse_turn,
)

_FORM = "write <function=NAME>, then <parameter=KEY> with each value, then </function>"
_FUNCTION = re.compile(r"\s*<function=([^>\n]*)>")
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]*)>\n?")
_END_OF_VALUE = re.compile(r"\n?</parameter>(?=\s*(?:<parameter=|</function>))")
_END_OF_FUNCTION = re.compile(r"\s*</function>\s*")
_WORDS: Mapping[str, Mapping[str, JsonValue]] = {
    "null": {"null": None, "None": None},
    "boolean": {"true": True, "True": True, "false": False, "False": False},
}
"""Templates write these as JSON or as Python does."""
_KINDS: Mapping[str, UnionType | type] = {
    "integer": int,
    "number": int | float,
    "array": list,
    "object": dict,
}
_JSON = (str, int, float, list, dict, NoneType)
_NAMES = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_MAX_REFERENCES = 8


def parse_xml_turn(text: str, tools: Sequence[ToolSpec]) -> ParsedTurn:
    """Read a turn by the rules of `parse_turn`; only what is between its call tags differs.

    Never raises. A call that is cut off before `</function>` is malformed: another argument could
    have followed.
    """
    return parse_turn(text, _Reader({tool.name: tool.parameters for tool in tools}))


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one call, with the schemas of the tools by name."""

    schemas: Mapping[str, Mapping[str, JsonValue]]

    def __call__(
        self, text: str, start: int, close_tag: re.Pattern[str]
    ) -> tuple[ToolCall | MalformedCall, int]:
        """Read the call whose body begins at `start`; return it and where to continue."""
        function = _FUNCTION.match(text, start)
        if function is None:
            problem = f"the tool call has no function: {_FORM}"
            return MalformedCall(problem=problem), end_of_unread(text, start, close_tag)
        schema = self.schemas.get(function[1].strip(), {})
        arguments: dict[str, object] = {}
        position, repeated = function.end(), ""
        while (parameter := _PARAMETER.match(text, position)) is not None:
            key, end = parameter[1].strip(), _END_OF_VALUE.search(text, parameter.end())
            if end is None:
                problem = f"the parameter {key[:40]} of the tool call is not closed: {_FORM}"
                return MalformedCall(problem=problem), len(text)
            repeated = key if key in arguments else repeated
            # The line break before the end is the template's, also of an empty value.
            arguments[key] = _typed(text[parameter.end() : end.start()], schema, key)
            position = end.end()
        closed = _END_OF_FUNCTION.match(text, position)
        if closed is None:
            problem = f"the function of the tool call is not closed: {_FORM}"
            return MalformedCall(problem=problem), end_of_unread(text, position, close_tag)
        end_of_call = end_of_unread(text, closed.end(), close_tag)
        tag = close_tag.search(text, closed.end(), end_of_call)
        if tag is not None and tag.start() > closed.end():
            problem = "something follows the function of the tool call: write one function a call"
            return MalformedCall(problem=problem), end_of_call
        resume = closed.end() if tag is None else end_of_call
        if repeated:
            return MalformedCall(problem=f"the parameter {repeated[:40]} occurs twice"), resume
        return as_call({"name": function[1], "arguments": arguments}), resume


def _typed(text: str, schema: Mapping[str, JsonValue], key: str) -> object:
    """Return a value by the types that its schema allows; a text where none of them fits."""
    properties = schema.get("properties")
    own = properties.get(key) if isinstance(properties, dict) else None
    kinds = set(_kinds(own, schema))
    for kind, words in _WORDS.items():
        if kind in kinds and text in words:
            return words[text]
    allowed = tuple(each for kind, each in _KINDS.items() if kind in kinds)
    decoded = decode_value(text, 0) if allowed else JsonFault(0, "")
    if isinstance(decoded, JsonFault) or text[decoded[1] :].strip():
        return text
    value = decoded[0]
    if isinstance(value, allowed) and not isinstance(value, bool):
        return value
    # What the decoder refuses, such as a key that occurs twice, is named by `as_call`.
    is_refused = not isinstance(value, _JSON)
    return value if is_refused and "string" not in kinds else text


def _kinds(
    own: JsonValue, schema: Mapping[str, JsonValue], references: int = _MAX_REFERENCES
) -> Iterator[str]:
    """Yield the types that a property's schema allows."""
    if not isinstance(own, dict):
        return
    named = own.get("type")
    names = [named] if isinstance(named, str) else _listed(named)
    yield from (each for each in names if isinstance(each, str))
    values = own.get("enum", [own["const"]] if "const" in own else [])
    if named is None and isinstance(values, list):
        yield from ("null" if each is None else _NAMES.get(type(each), "string") for each in values)
    parts = [part for name in ("anyOf", "oneOf", "allOf") for part in _listed(own.get(name))]
    target = own.get("$ref")
    if isinstance(target, str) and target.startswith("#/") and references > 0:
        definitions = schema.get(target.split("/")[1])
        if isinstance(definitions, dict):
            parts.append(definitions.get(target.rpartition("/")[2]))
    for part in parts:
        yield from _kinds(part, schema, references - 1)


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
