"""The system message of SkyRL's Fleet environment.

Source: `FleetTaskEnv.init_async` of `skyrl_gym/envs/fleet_task/env.py` (fleet-ai/SkyRL-Fleet
`90062747`), whose text this is, and `convert_tool_format` and `SUBMIT_FINAL_ANSWER_TOOL` of OpenEnv
`009c1ed`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.task import Task

_ROLE = "You are a helpful agent. Complete the task by calling tools."
_NAMES = {"LOGGED_IN_USER": "Logged in user ID", "LOGGED_IN_NAME": "Logged in as"}
_DATE = "CURRENT_DATE"
_HINTS = {
    "fostgres": (
        "\n## Database Exploration\n"
        "Before writing SQL queries, first explore the database schema:\n"
        "- List tables: SELECT table_name FROM information_schema.tables "
        "WHERE table_schema = 'public'\n"
        "- List columns: SELECT column_name, data_type FROM "
        "information_schema.columns WHERE table_name = 'your_table'\n"
    )
}
"""Hints by environment key."""
_SUBMIT = "submit_final_answer"
_SUBMIT_FUNCTION: dict[str, JsonValue] = {
    "name": _SUBMIT,
    "description": (
        "Submit your final answer to complete the task. Use this when you "
        "have finished the task and want to provide your answer for "
        "verification. If the requested answer asks for json, then write "
        "your response in the answer field using json brackets."
    ),
    "parameters": {
        "type": "object",
        "properties": {"answer": {"type": "string", "description": "Your final answer"}},
        "required": ["answer"],
    },
}
_RULES = """\
## Error Handling
If a tool call returns an error:
- Read the error message carefully
- Do NOT repeat the same call with identical arguments
- Change your approach: use different parameters, try a different tool, or break the task into \
smaller steps

## Response Format
EVERY response MUST end with exactly ONE of:
1. A tool call: <tool_call>...</tool_call> - to perform an action
2. Done signal: <done> - ONLY when the task is fully complete

IMPORTANT: When the task is complete, first output your final answer with the requested \
information, THEN say <done>. Do not just say <done> without providing the answer.

NEVER respond with just a message. NEVER say "feel free to ask" or offer further help.
If the task is complete, provide your answer then say <done>. Otherwise, make a tool call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkyrlWording:
    """SkyRL's system message; `today` dates the tasks that have no date of their own."""

    today: date
    version: str = "skyrl-1"

    def render_tools(self, tools: Sequence[ToolSpec]) -> str:
        """Return the tools as indented OpenAI JSON, and the form of a call with their names."""
        functions = [_function(tool) for tool in tools]
        described = [{"type": "function", "function": function} for function in functions]
        names = ", ".join(tool.name for tool in tools)
        return (
            f"## Available Tools\n{json.dumps(described, indent=2)}\n\n"
            f"## Tool Call Format\n"
            f"Use the tools listed above by name ({names}). Format each call as:\n"
            '<tool_call>{"name": "<tool_name_from_above>", "arguments": {...}}</tool_call>'
        )

    def compose_system(self, task: Task, tools_text: str) -> str:
        """Return role, date, logged-in user, hints, tools and rules."""
        today, year = _date_of(task, self.today)
        return (
            f"{_ROLE}\n\n"
            f"## Current Date\n"
            f"Today's date is {today}. When dates are mentioned without a year, assume the"
            f" current year ({year}) or a future date.\n"
            f"{_context(task.env_variables)}{_HINTS.get(task.env_key, '')}\n"
            f"{self.shared_part(tools_text)}"
        )

    def compose_first(self, task: Task) -> str:
        """Return the task's prompt as it is."""
        return task.prompt

    def shared_part(self, tools_text: str) -> str:
        """Return the tools and the rules after them."""
        return f"{tools_text}\n\n{_RULES}"


def _function(tool: ToolSpec) -> dict[str, JsonValue]:
    if tool.name == _SUBMIT:
        return _SUBMIT_FUNCTION
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": {
            "type": "object",
            "properties": tool.parameters.get("properties", {}),
            "required": tool.parameters.get("required", []),
        },
    }


def _date_of(task: Task, today: date) -> tuple[str, int]:
    """Return the task's date, as it writes it, and its year."""
    own = task.env_variables.get(_DATE)
    if not own:
        return today.isoformat(), today.year
    year = own[:4]
    return own, int(year) if year.isdecimal() else today.year


def _context(variables: Mapping[str, str]) -> str:
    """Return the section of the task's variables, the user's first."""
    order = [*(key for key in _NAMES if key in variables)]
    order += [key for key in variables if key not in _NAMES and key != _DATE]
    lines = [f"- {_NAMES.get(key, key)}: {variables[key]}" for key in order]
    return "\n".join(("\n## Environment Context", *lines, "")) if lines else ""
