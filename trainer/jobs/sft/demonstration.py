"""Demonstrations as their file has them: conversations with tool calls, one JSON object per line.

The form is that of chat completions: `messages` with the roles system, user, assistant and tool;
calls of an assistant under `tool_calls`, their arguments as an object or as JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError

from hillclimb.spec.section import EnvKey
from trainer.errors import DataError

MAX_LINE_BYTES = 16 << 20


def _as_object(value: object) -> object:
    """Return arguments that are JSON text as what they say; `""` are none."""
    if not isinstance(value, str):
        return value
    return json.loads(value) if value.strip() else {}


class _DemonstrationPart(BaseModel):
    model_config = ConfigDict(frozen=True)


class DemonstrationFunction(_DemonstrationPart):
    """The function of a call: its name and its arguments."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    arguments: Annotated[dict[str, JsonValue], BeforeValidator(_as_object)] = {}


class DemonstrationCall(_DemonstrationPart):
    """A call of an assistant."""

    function: DemonstrationFunction


class DemonstrationMessage(_DemonstrationPart):
    """A message of a conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    tool_calls: tuple[DemonstrationCall, ...] = ()
    is_error: bool = False
    """The tool reports an error."""


class DemonstrationTool(_DemonstrationPart):
    """A tool, as chat completions describe it."""

    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str = ""
    parameters: dict[str, JsonValue] = {}


def _functions(value: object) -> object:
    """Return tools without the wrapper `{"type": "function", "function": {...}}`."""
    if not isinstance(value, list):
        return value
    return [each.get("function", each) if isinstance(each, dict) else each for each in value]


class Demonstration(_DemonstrationPart):
    """One conversation. Without a system message its prompt is the one that a rollout begins with.

    Example:
        {"env_key": "post", "messages": [{"role": "user", "content": "Weigh the parcel."},
         {"role": "assistant", "tool_calls": [{"function": {"name": "weigh", "arguments": {}}}]},
         {"role": "tool", "content": "412 g"}, {"role": "assistant", "content": "<done>"}]}
    """

    env_key: EnvKey | None = None
    """Its environment; may be left out where the run has one alone."""
    messages: Annotated[tuple[DemonstrationMessage, ...], Field(min_length=2, max_length=10_000)]
    tools: Annotated[tuple[DemonstrationTool, ...] | None, BeforeValidator(_functions)] = None
    """Tools of the prompt; null: those of the environment."""
    env_variables: dict[str, str] = {}

    @property
    def has_system(self) -> bool:
        """True if the conversation has a system message of its own."""
        return self.messages[0].role == "system"


def read_demonstrations(lines: Iterable[bytes]) -> Iterator[Demonstration]:
    """Yield the demonstrations of a file's lines; empty lines are skipped.

    Raises:
        DataError: a line is no demonstration; the sentence names line and field, not the content.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if len(line) > MAX_LINE_BYTES:
            raise DataError(f"line {number} has more than {MAX_LINE_BYTES >> 20} MiB")
        yield _read(line, number)


def _read(line: bytes, number: int) -> Demonstration:
    try:
        demonstration = Demonstration.model_validate(json.loads(line))
    except ValidationError as error:
        first: Any = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        raise DataError(f"line {number}, {place}: {first['msg']}") from None
    except (ValueError, RecursionError):
        raise DataError(f"line {number} is no JSON") from None
    if (problem := _problem(demonstration.messages)) is not None:
        raise DataError(f"line {number}: {problem}")
    return demonstration


def _problem(messages: tuple[DemonstrationMessage, ...]) -> str | None:
    """Return what is wrong with the order of the messages, or None."""
    roles = [message.role for message in messages]
    turns = roles[1:] if roles[0] == "system" else roles
    if turns[:1] != ["user"]:
        return "it begins with no user message: the task comes first, after a system message"
    if "system" in turns:
        return "it has a second system message"
    if "assistant" not in turns:
        return "it has no assistant message, so there is nothing to imitate"
    if turns[1] != "assistant":
        return "after the task comes an assistant message, and here none does"
    for before, after in pairwise(turns):
        if before == after == "assistant":
            return "two assistant messages follow one another: join them, or put the answer between"
    empty = [m for m in messages if m.role == "assistant" and not (m.content or m.tool_calls)]
    return "an assistant message has neither content nor tool_calls" if empty else None
