"""Conversion of a tool from MCP's list to the specification for the model.

The schema is brought into the plain form that Fleet's own client gives models: no `title` and no
`default`, no `anyOf` with null, no `prefixItems`. Names of properties are names, not keywords: a
property called `title` stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec

_DROPPED = frozenset({"title", "default", "$schema"})
_NAMED = frozenset(
    {
        *("properties", "patternProperties", "$defs", "definitions"),
        *("dependentRequired", "dependentSchemas"),
    }
)
"""Keywords whose keys are property names."""
_DATA = frozenset({"enum", "const", "examples", "example"})
"""Keywords whose values are no schemas."""


def tool_spec(wire: Mapping[str, JsonValue]) -> ToolSpec:
    """Return the tool that an entry of `tools/list` describes."""
    schema = wire.get("inputSchema")
    plain = normalised(schema if isinstance(schema, dict) else {})
    parameters = cast("dict[str, JsonValue]", plain)
    return ToolSpec(
        name=str(wire.get("name", "")),
        description=str(wire.get("description") or ""),
        parameters=parameters if "type" in parameters else {"type": "object", **parameters},
    )


def changes_nothing(wire: Mapping[str, JsonValue]) -> bool:
    """Tell whether a tool's annotations declare that a repeated call has no further effect.

    MCP's annotations are hints; a tool without them counts as one that changes something.
    """
    hints = wire.get("annotations")
    if not isinstance(hints, dict):
        return False
    return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True


def normalised(schema: JsonValue) -> JsonValue:
    """Return a JSON Schema in the plain form."""
    if isinstance(schema, list):
        return [normalised(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, JsonValue] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            plain[key] = {name: normalised(inner) for name, inner in value.items()}
        elif key in _DATA:
            plain[key] = value
        elif key not in _DROPPED:
            plain[key] = normalised(value)
    return _without_prefix(_without_null(plain))


def _without_null(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Collapse `anyOf: [X, null]` to X; several others stay alternatives."""
    choices = schema.get("anyOf")
    if not isinstance(choices, list):
        return schema
    other_keys = {key: value for key, value in schema.items() if key != "anyOf"}
    alternatives = [each for each in choices if each != {"type": "null"}]
    if len(alternatives) == 1 and isinstance(alternatives[0], dict):
        return {**alternatives[0], **other_keys}
    return {**other_keys, "anyOf": alternatives} if alternatives else other_keys


def _without_prefix(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Replace the positional schemas of a tuple by one schema of its items."""
    prefix = schema.get("prefixItems")
    if not isinstance(prefix, list):
        return schema
    other_keys = {key: value for key, value in schema.items() if key != "prefixItems"}
    distinct: list[JsonValue] = []
    for each in prefix:
        if each not in distinct:
            distinct.append(each)
    if not distinct:
        return other_keys
    return {**other_keys, "items": distinct[0] if len(distinct) == 1 else {"anyOf": distinct}}
