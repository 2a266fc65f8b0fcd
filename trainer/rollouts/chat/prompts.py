"""The prompts of agents: one versioned text, because wording alone changes pass rates.

Sections: role, date, logged-in user, tools as JSON, call format, no identical calls, and the end
of a turn; in version 2 date and user come last. The date is the task's own, never the machine's,
which would drift away from that of the environment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task

PROMPT_VERSION = "1"
"""Changes with any change of wording below; stored with the run and with every tiny model."""
SHARED_FIRST_VERSION = "2"
"""The same lines with those that tasks share in front."""

TURN_RULES = (
    "Do not repeat a call with identical arguments.",
    "End every turn with one tool call, or with <done> when the task is complete.",
)
INSTRUCTIONS = (
    'Call format: <tool_call>{"name": ..., "arguments": {...}}</tool_call>',
    *TURN_RULES,
)
"""The last lines of every system message."""

NO_CALL_OBSERVATION = (
    "no tool call found. Write <tool_call>{...}</tool_call>, or <done> when the task is complete."
)
"""Error observation for a turn which neither calls a tool nor says it is done."""


def render_system(task: Task, tools: Sequence[ToolSpec]) -> str:
    """Return the system message of `task`: deterministic, one tool per line."""
    return compose_system(task, render_tools(tools))


def render_tools(tools: Sequence[ToolSpec]) -> str:
    """The part of a system message that describes the tools."""
    return "\n".join(["Tools:", *(_render_tool(tool) for tool in tools)])


def compose_system(task: Task, tools_text: str, *, shared_first: bool = False) -> str:
    """The system message of `task` around its rendered tools, which most tasks share.

    An engine computes again all that follows the first difference between two prompts. With
    `shared_first` that are the few lines of the task's own, and not the tools.
    """
    role, own = role_line(task), own_lines(task)
    shared = (tools_text, *INSTRUCTIONS)
    return "\n".join([role, *shared, *own] if shared_first else [role, *own, *shared])


def role_line(task: Task) -> str:
    """The first line of a system message."""
    return f"You are an agent working in the app {task.env_key}."


def own_lines(task: Task) -> list[str]:
    """The lines of a task's own: its date, then its other variables by name."""
    context = {key: value for key, value in task.env_variables.items() if key != "CURRENT_DATE"}
    own = []
    if "CURRENT_DATE" in task.env_variables:
        own.append(f"Current date: {task.env_variables['CURRENT_DATE']}")
    return own + [f"{key}: {value}" for key, value in sorted(context.items())]


def render_observation(text: str, *, is_error: bool) -> str:
    """The user message that carries a tool's answer."""
    return f"Error: {text}" if is_error else f"Tool result:\n{text}"


def render_call(name: str, arguments: Mapping[str, JsonValue]) -> str:
    """Return a tool call in the prompt's format, for demonstrations."""
    call = {"name": name, "arguments": dict(arguments)}
    return f"<tool_call>{json.dumps(call, ensure_ascii=False)}</tool_call>"


def prompt_hash(system: str, prompt: str, version: str = PROMPT_VERSION) -> str:
    """SHA-256 (hex) of everything the agent reads before its first turn, and of its version."""
    text = f"{version}\0{system}\0{prompt}"
    return hashlib.sha256(text.encode()).hexdigest()


def _render_tool(tool: ToolSpec) -> str:
    description = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return json.dumps(description, ensure_ascii=False, separators=(",", ":"))
