"""Renders the answers of tools as SkyRL's Fleet environment does.

Source: `_extract_tool_result` and `_is_tool_error` of OpenEnv `009c1ed`, the end of
`FleetTaskEnv.step_async` and `_sanitize_messages_for_template` of SkyRL-Fleet `90062747`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult

NO_CALL = (
    'No tool call found. Use <tool_call>{"name": "...", "arguments": {...}}</tool_call> format.'
)
_EMPTY = "Action executed."
"""Message after a call whose answer is empty, null, false or 0."""
_ERRORS = ("Error:", "error:")


def unknown_tool(name: str) -> ToolResult:
    """Return the answer to a call of a tool that no endpoint lists.

    OpenEnv asks its endpoints eight times and then reports so; here nothing is asked.
    """
    return ToolResult(text=f"call_tool({name}) failed after 8 attempts", is_error=True)


def render_answer(result: ToolResult) -> str:
    """Return the user message that carries an answer: JSON is indented, errors are named."""
    value = _read_json(result.text)
    if isinstance(value, dict):
        error = _error_of(value)
        if error is not None:
            return f"Error: {error}"
    if result.is_error:
        return f"Error: {result.text}"
    if not value:
        return _EMPTY
    if isinstance(value, dict):
        return f"Tool result:\n{json.dumps(value, indent=2)}"
    if isinstance(value, list):
        return "\n".join(map(_line, value))
    if isinstance(value, str) and value.strip().startswith(_ERRORS):
        return f"Error: {value}"
    return f"Tool result:\n{value}"


def _read_json(text: str) -> JsonValue:
    """Return the JSON value of an answer, or its text."""
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value


def _error_of(answer: Mapping[str, JsonValue]) -> JsonValue:
    """Return the message of an answer that reports a failure; None for any other."""
    if answer.get("error"):
        return str(answer["error"])
    failures = {
        "status=failed": answer.get("status") == "failed",
        "isError=true": answer.get("isError"),
    }
    for words, has_failed in failures.items():
        if has_failed:
            return answer.get("message") or words
    return None


def _line(item: JsonValue) -> str:
    """Return an item of a list, which SkyRL takes for a part of a message with images."""
    if isinstance(item, dict) and "text" in item:
        return str(item["text"])
    if isinstance(item, dict) and ("image_url" in item or "image" in item):
        return "[image]"
    return str(item)
