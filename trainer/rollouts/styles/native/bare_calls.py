"""Reads a call that is the whole turn: a JSON object with `name` and `parameters`, as Llama 3's."""

from __future__ import annotations

from dataclasses import replace

from trainer.rollouts.chat.parsing import (
    JsonFault,
    MalformedCall,
    ParsedTurn,
    as_call,
    decode_value,
    parse_turn,
)

PYTHON_TAG = "<|python_tag|>"
"""Llama writes it before calls of its built-in tools, and sometimes before others."""
_ARGUMENTS, _PARAMETERS = '"arguments"', '"parameters"'


def parse_bare_turn(text: str) -> ParsedTurn:
    """Read a turn that begins with a JSON object as a call, any other one as `parse_turn` does.

    Never raises. What follows the object is read as the rest of a turn: a `<done>` counts.

    Example:
        parse_bare_turn('{"name": "search", "parameters": {"city": "Brno"}}').calls
        == (ToolCall(name="search", arguments={"city": "Brno"}),)
    """
    body = text.lstrip().removeprefix(PYTHON_TAG).lstrip()
    if not body.startswith("{"):
        return parse_turn(text)
    decoded = decode_value(body, 0)
    if isinstance(decoded, JsonFault):
        problem = f"the tool call is not valid JSON ({decoded.message.lower()})"
        return ParsedTurn(calls=(MalformedCall(problem=problem),), done=False, answer="")
    value, end = decoded
    if isinstance(value, dict) and "parameters" in value and "arguments" not in value:
        value = {"arguments" if key == "parameters" else key: each for key, each in value.items()}
    call = as_call(value)
    if isinstance(call, MalformedCall):
        call = MalformedCall(problem=call.problem.replace(_ARGUMENTS, _PARAMETERS))
    rest = parse_turn(body[end:])
    return replace(rest, calls=(call, *rest.calls))
