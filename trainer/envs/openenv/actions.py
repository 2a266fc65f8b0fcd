"""Actions of an OpenEnv server as tools, and its observations as text.

Two kinds of server: those with MCP tools, which become our tools one by one, and those with one
pydantic `Action`, which becomes the single tool `act`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from hillclimb.environment.base import ToolResult, ToolSpec
from hillclimb.environment.errors import ToolTransport

ACT = "act"
LIST_TOOLS: dict[str, Any] = {"type": "list_tools"}
_TRANSPORT = ("timeout", "transport_error")
"""OpenEnv's types of tool errors in which the tool did not respond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actions:
    """The actions of one server, from its JSON Schema."""

    schema: Mapping[str, Any]
    text_field: str | None = None
    """Field of the observations that is shown; None: the only one, or all as JSON."""

    @property
    def are_tools(self) -> bool:
        """True if the server has MCP tools, according to the schema of its actions."""
        own = self._own_fields()
        kind = own.get("type", {}).get("const")
        return kind in ("call_tool", "list_tools") or (
            not own and self.schema.get("title") == "Action"
        )

    def tools(self, observation: Mapping[str, Any]) -> tuple[ToolSpec, ...]:
        """Return the tools; `observation` is the response to `LIST_TOOLS`, used for MCP tools."""
        if self.are_tools:
            return tuple(
                ToolSpec(
                    name=each["name"],
                    description=each.get("description", ""),
                    parameters=without_titles(each.get("input_schema", {})),
                )
                for each in observation.get("tools", ())
            )
        schema = {key: value for key, value in self.schema.items() if key != "description"}
        schema["properties"] = self._own_fields()
        description = str(self.schema.get("description") or "Take one action.")
        return (ToolSpec(name=ACT, description=description, parameters=without_titles(schema)),)

    def action(self, name: str, arguments: Mapping[str, JsonValue]) -> dict[str, Any]:
        """Return the action of one call."""
        if self.are_tools:
            return {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}
        return dict(arguments)

    def result(self, observation: Mapping[str, Any], *, ends_episode: bool) -> ToolResult:
        """Return the result of a call.

        Raises:
            ToolTransport: the environment got no response from the tool.
        """
        error = observation.get("error") if self.are_tools else None
        if isinstance(error, dict):
            if error.get("error_type") in _TRANSPORT:
                raise ToolTransport(str(error.get("message")))
            return ToolResult(
                text=str(error.get("message")), is_error=True, ends_episode=ends_episode
            )
        result = observation.get("result") if "tool_name" in observation else None
        is_error = isinstance(result, dict) and bool(result.get("is_error"))
        text = self.text(observation) if result is None else _tool_text(result)
        return ToolResult(text=text, is_error=is_error, ends_episode=ends_episode)

    def text(self, observation: Mapping[str, Any]) -> str:
        """Return an observation as the model reads it; empty for an empty one."""
        if self.text_field is not None and self.text_field in observation:
            return _plain(observation[self.text_field])
        fields = {key: value for key, value in observation.items() if value is not None}
        if not fields:
            return ""
        only = next(iter(fields.values()))
        return only if len(fields) == 1 and isinstance(only, str) else _plain(fields)

    def caused_by_policy(
        self, errors: list[dict[str, Any]], arguments: Mapping[str, JsonValue]
    ) -> bool:
        """Tell whether validation errors concern the action, not the server's own observation."""
        known = {*self.schema.get("properties", {}), *arguments}
        places = [each.get("loc") or () for each in errors]
        return all(not place or place[0] in known for place in places)

    def _own_fields(self) -> dict[str, Any]:
        properties = self.schema.get("properties", {})
        return {key: value for key, value in properties.items() if key != "metadata"}


def complaint(errors: list[dict[str, Any]]) -> str:
    """Return validation errors in one line."""
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, each.get("loc") or ())), str(each.get("msg")))))
        for each in errors
    )


def without_titles(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON Schema without pydantic's titles, which only repeat the fields' names."""
    return {
        key: {name: _untitled(inner) for name, inner in value.items()}
        if key in ("properties", "$defs") and isinstance(value, dict)
        else _untitled(value)
        for key, value in schema.items()
        if key != "title"
    }


def _untitled(value: Any) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, dict):
        return without_titles(value)
    return [_untitled(each) for each in value] if isinstance(value, list) else value


def _tool_text(result: Any) -> str:  # noqa: ANN401 - JSON
    """Return the text of an MCP result: its blocks, one per line."""
    blocks = result.get("content") if isinstance(result, dict) else None
    if not isinstance(blocks, list):
        return _plain(result)
    return "\n".join(
        str(block.get("text", "")) if block.get("type") == "text" else f"[{block.get('type')}]"
        for block in blocks
        if isinstance(block, dict)
    )


def _plain(value: Any) -> str:  # noqa: ANN401 - JSON
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
