"""Checking tool arguments against the flat JSON Schemas the miniature apps publish."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.minifleet.framework.world import quoted

MAX_TEXT = 200
"""Characters a string argument may have; longer ones are refused."""


def text(*choices: str) -> JsonValue:
    """Return the schema of a string argument, closed to `choices` when there are any."""
    return {"type": "string", "enum": list(choices)} if choices else {"type": "string"}


def integer() -> JsonValue:
    """Return the schema of an integer argument."""
    return {"type": "integer"}


def parameters(required: Mapping[str, JsonValue], **optional: JsonValue) -> dict[str, JsonValue]:
    """Return a schema of type object from its required and optional properties."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "required": list(required),
    }


def argument_error(
    arguments: Mapping[str, JsonValue], schema: Mapping[str, JsonValue]
) -> str | None:
    """Return the first error in `arguments` in a few words, or None.

    Arguments the schema does not name are errors too: a misspelt one must not pass.
    """
    properties, required = schema["properties"], schema["required"]
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise TypeError("not a flat object schema")
    for name in arguments:
        if name not in properties:
            return f"unknown argument {quoted(name)}"
    missing = [str(name) for name in required if name not in arguments]
    if missing:
        return f"missing argument {missing[0]}"
    for name, value in arguments.items():
        problem = _value_error(value, properties[name])
        if problem:
            return f"{name} {problem}"
    return None


def _value_error(value: JsonValue, schema: JsonValue) -> str | None:
    if not isinstance(schema, dict):
        raise TypeError("not a property schema")
    if schema["type"] == "integer":
        # bool is a subclass of int in Python, and no integer in JSON.
        is_integer = isinstance(value, int) and not isinstance(value, bool)
        return None if is_integer else "must be an integer"
    if not isinstance(value, str):
        return "must be a string"
    choices = schema.get("enum")
    if isinstance(choices, list) and value not in choices:
        return f"must be one of {', '.join(map(str, choices))}"
    return "is too long" if len(value) > MAX_TEXT else None
