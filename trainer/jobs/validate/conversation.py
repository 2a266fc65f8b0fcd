"""A conversation with a teacher, in no protocol's own words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from pydantic import JsonValue

from trainer.envs.base import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A tool call that the teacher makes."""

    id: str
    name: str
    arguments: Mapping[str, JsonValue] | None
    """None where what it wrote is no JSON object: that is answered with an error."""
    written: str
    """The arguments as they came."""


@dataclass(frozen=True, slots=True)
class User:
    """What we say."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the teacher says; without a call it is done."""

    text: str
    calls: tuple[Call, ...] = ()
    cut: str | None = None
    """Why this is not all that it had to say, in a sentence; None where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a call came to."""

    id: str
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all calls of an answer, in order."""

    results: tuple[Result, ...]


Message: TypeAlias = User | Answer | Results


CUT_AT_THE_LIMIT = (
    "the teacher's answer was cut off at validation.teacher.max_output_tokens: raise it"
)
CUT_BY_A_FILTER = "the endpoint's filter held the teacher's answer back"
CUT_AT_THE_CONTEXT = "the conversation does not fit the teacher's context"
REFUSES = "the teacher refuses to answer"


class Teacher(Protocol):
    """A model that is asked what to do next."""

    async def answer(
        self, system: str, conversation: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Answer:
        """Return its next turn.

        Raises:
            TeacherUnavailable: the endpoint gave none.
            SpecError: it refuses us from the beginning.
        """
        ...
