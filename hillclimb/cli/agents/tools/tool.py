"""A tool: its arguments as a section, and the function that answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hillclimb.client.client import Client
from hillclimb.protocol.payloads.base import Payload

Json = dict[str, Any]
RunId = Annotated[str, Field(min_length=1, max_length=100, description="Id of a run.")]
Step = Annotated[int, Field(ge=0, le=10**9)]
Spec = Annotated[
    dict[str, JsonValue],
    Field(description="A run spec: name, data, schedule … (docs page `spec`; tool `presets`)."),
]


class Arguments(BaseModel):
    """The arguments of a tool; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """The parts that a tool may use: the client, and an event that is set as the server stops."""

    client: Client
    stopping: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTool:
    """One tool."""

    name: str
    summary: str
    arguments: type[Arguments]
    answer: Callable[[ToolContext, Any], Json | str]
    writes: bool = False
    """True if it changes something."""

    def described(self) -> Json:
        """Return the tool as `tools/list` has it."""
        schema = self.arguments.model_json_schema()
        schema.pop("title", None)
        schema.pop("description", None)
        return {
            "name": self.name,
            "description": self.summary,
            "inputSchema": schema,
            "annotations": {"readOnlyHint": not self.writes, "openWorldHint": False},
        }


def facts(payload: Payload, *names: str) -> Json:
    """Return a payload as compact JSON values, or only these of its fields."""
    chosen = payload.model_dump(mode="json", include=set(names) or None)
    values: Json = compact(chosen)
    return values


def compact(value: Any) -> Any:
    """Return JSON values without nulls and empty lists, with numbers of five digits."""
    if isinstance(value, Mapping):
        pairs = ((key, compact(inner)) for key, inner in value.items() if key != "object")
        return {key: inner for key, inner in pairs if inner is not None and inner not in ([], {})}
    if isinstance(value, list | tuple):
        return [compact(each) for each in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
