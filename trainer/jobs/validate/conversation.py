"""A conversation with a teacher, independent of the endpoint's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from hillclimb.environment.base import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that the teacher makes."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue] | None
    """None if they are not a JSON object: the result of the call is then an error."""
    written: str
    """The arguments as text, unparsed."""


@dataclass(frozen=True, slots=True)
class User:
    """A user message: the task's prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class TeacherReply:
    """An answer of the teacher; one without calls ends the episode."""

    text: str
    calls: tuple[Call, ...] = ()
    cut: str | None = None
    """Reason why the answer is incomplete, as a sentence; None if it is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a call."""

    id: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all calls of an answer, in order."""

    results: tuple[Result, ...]


Message: TypeAlias = User | TeacherReply | Results


CUT_AT_THE_LIMIT = (
    "the teacher's answer was cut off at validation.teacher.max_output_tokens: raise it"
)
CUT_BY_A_FILTER = "the endpoint's content filter blocked the teacher's answer"
CUT_AT_THE_CONTEXT = "the conversation does not fit the teacher's context"
REFUSES = "the teacher refuses to answer"


class Teacher(Protocol):
    """A model that acts in episodes by tool calls."""

    async def answer(
        self, system: str, conversation: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> TeacherReply:
        """Return the next turn.

        Raises:
            TeacherUnavailable: the endpoint gave no usable answer.
            SpecError: the endpoint rejects the first request.
        """
        ...
