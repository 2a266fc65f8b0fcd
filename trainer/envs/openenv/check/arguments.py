"""Random arguments of a tool, drawn from its JSON Schema."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

_WORDS = ("a", "red", "lamp", "17", "north")
_TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
MAX_DEPTH = 8


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with the parameters of a tool, or None."""
    if schema.get("type") != "object":
        return f"its parameters are of type {schema.get('type')!r}, not object"
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return "its properties are no object"
    for name, inner in properties.items():
        if not isinstance(inner, Mapping):
            return f"its parameter {name} has no schema"
        kind = inner.get("type")
        if isinstance(kind, str) and kind not in _TYPES:
            return f"its parameter {name} is of the unknown type {kind!r}"
    required = schema.get("required", [])
    missing = [name for name in required if name not in properties]
    return f"it requires {missing[0]}, which it does not describe" if missing else None


def draw_arguments(schema: Mapping[str, Any], draw: random.Random) -> dict[str, JsonValue]:
    """Return random arguments that fit the parameters of a tool; optional ones half the time."""
    required = schema.get("required", [])
    definitions = schema.get("$defs", {})
    return {
        name: _value(inner, definitions, draw, MAX_DEPTH)
        for name, inner in schema.get("properties", {}).items()
        if name in required or draw.random() < 0.5
    }


def _value(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], draw: random.Random, depth: int
) -> JsonValue:
    reference = str(schema.get("$ref", "")).rpartition("/")[2]
    if reference in definitions and depth:
        return _value(definitions[reference], definitions, draw, depth - 1)
    if "const" in schema:
        return schema["const"]  # type: ignore[no-any-return]
    if schema.get("enum"):
        return draw.choice(schema["enum"])  # type: ignore[no-any-return]
    for choices in (schema.get("anyOf"), schema.get("oneOf")):
        if choices and depth:
            return _value(draw.choice(choices), definitions, draw, depth - 1)
    return _of_type(schema, definitions, draw, depth)


def _of_type(
    schema: Mapping[str, Any], definitions: Mapping[str, Any], draw: random.Random, depth: int
) -> JsonValue:
    kind = schema.get("type", "string")
    if kind in ("integer", "number"):
        low = int(schema.get("minimum", schema.get("exclusiveMinimum", -1) + 1))
        return draw.randint(low, max(low, int(schema.get("maximum", low + 10))))
    if kind == "boolean":
        return draw.random() < 0.5
    if kind == "null":
        return None
    if kind == "array":
        items = schema.get("items", {})
        return [_value(items, definitions, draw, depth - 1)] if depth else []
    if kind == "object":
        inner = {**schema, "$defs": definitions}
        return draw_arguments(inner, draw) if depth else {}
    return draw.choice(_WORDS)
