"""A platform's dialect: names of identifiers, and the form of answers and errors."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult, ToolSpec

_NOUNS = "hotel room booking issue mail post event seat hold ticket deal contact home keep drop"
IDENTIFIERS = frozenset(_NOUNS.split())
"""Arguments of the miniature apps whose values name one thing."""

Form = Callable[[str], str]


def as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How one platform writes what the miniature apps say."""

    name: str = "plain"
    spells: str | None = None
    """Name of an identifier's argument with the noun for `{}`; None: as the app has it."""
    as_text: bool = False
    """Numbers that identify are text."""
    in_list: bool = False
    """Identifiers come as lists of one."""
    under: str | None = None
    """Identifiers stand in an object of this name."""
    fixed: Mapping[str, JsonValue] = field(default_factory=dict)
    """Further arguments of every call, which change nothing."""
    success: Form = as_it_is
    failure: Form = as_it_is
    marks_errors: bool = True

    def spell(self, name: str) -> str:
        """Return the platform's name of an app's argument."""
        return self.spells.format(name) if self.spells and name in IDENTIFIERS else name

    def write(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the arguments as the policy writes them on this platform."""
        plain: dict[str, JsonValue] = {}
        named: dict[str, JsonValue] = {}
        for name, value in arguments.items():
            is_named = self.spells is not None and name in IDENTIFIERS
            (named if is_named else plain)[self.spell(name)] = (
                self._identifier(value) if is_named else value
            )
        if self.under and named:
            named = {self.under: named}
        return {**named, **plain, **self.fixed}

    def read(self, arguments: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the app's arguments from the platform's."""
        flat = {name: value for name, value in arguments.items() if name not in self.fixed}
        inner = flat.pop(self.under, {}) if self.under else {}
        assert isinstance(inner, dict)
        natives = {self.spell(name): name for name in IDENTIFIERS}
        return {
            natives.get(name, name): self._native(value) if name in natives else value
            for name, value in {**inner, **flat}.items()
        }

    def describe(self, tool: ToolSpec) -> ToolSpec:
        """Return a tool with the platform's names of its arguments."""
        properties = tool.parameters["properties"]
        assert isinstance(properties, dict)
        renamed = {self.spell(name): schema for name, schema in properties.items()}
        return ToolSpec(
            name=tool.name,
            description=tool.description,
            parameters={"type": "object", "properties": renamed},
        )

    def result(self, native: ToolResult) -> ToolResult:
        """Return an app's answer in the platform's form."""
        if native.is_error:
            return ToolResult(text=self.failure(native.text), is_error=self.marks_errors)
        return ToolResult(text=self.success(native.text))

    def _identifier(self, value: JsonValue) -> JsonValue:
        value = str(value) if self.as_text else value
        return [value] if self.in_list else value

    def _native(self, value: JsonValue) -> JsonValue:
        if self.in_list and isinstance(value, list):
            value = value[0]
        if self.as_text and isinstance(value, str) and value.isdigit():
            return int(value)
        return value


def rows(text: str) -> JsonValue:
    """Return an answer's lines as JSON; a sentence as it is."""
    if not text.startswith("{"):
        return text
    return [json.loads(line) for line in text.splitlines()]
