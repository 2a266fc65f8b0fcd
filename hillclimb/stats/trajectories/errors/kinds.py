"""Kinds of tool errors, from the environment's answers."""

from __future__ import annotations

import re
from enum import StrEnum

from hillclimb.stats.trajectories.errors.recognition import error_text
from hillclimb.stats.trajectories.errors.wording import (
    ARGUMENTS,
    AUTHORIZATION,
    NOT_FOUND,
    UNKNOWN_TOOL,
)


class ToolErrorKind(StrEnum):
    """The kind of a tool error: a closed list."""

    ARGUMENT_VALIDATION = "argument_validation"
    """The arguments are refused whatever the state: missing, unknown, ill-typed, out of range."""
    AUTHORIZATION = "authorization"
    """The caller may not do it, or is not known."""
    NOT_FOUND = "not_found"
    """What the call names does not exist."""
    UNKNOWN_TOOL = "unknown_tool"
    UNREADABLE_CALL = "unreadable_call"
    """The call is not valid JSON, or has no name."""
    OTHER = "other"
    """Refused for the state of things, or by a fault of the platform."""


def classify(answer: str | None, *, is_error: bool) -> ToolErrorKind | None:
    """Return the kind of error that an answer is; None for a success and for no answer."""
    if answer is None or not answer.strip():
        return None
    text = error_text(answer, is_error=is_error)
    if text is None:
        return None
    plain = _plain(text)
    for kind, pattern in _KINDS:
        if pattern.search(plain):
            return kind
    return ToolErrorKind.OTHER


_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_QUOTED = re.compile(r'"[^"\n]{0,300}"|(?<!\w)\'[^\'\n]{0,300}\'(?!\w)|`[^`\n]{0,300}`')
_SPACE = re.compile(r"\s+")


def unquoted(text: str) -> str:
    """Return the text with an ellipsis in place of each short quotation, such as a title."""
    return _QUOTED.sub(" … ", text)


def _plain(text: str) -> str:
    """Return the text in lower case, words apart, without what it quotes."""
    words = _CAMEL.sub(" ", text).replace("\u2019", "'")
    return _SPACE.sub(" ", unquoted(words).lower().replace("_", " ").replace("-", " "))


_KINDS = (
    (ToolErrorKind.UNKNOWN_TOOL, UNKNOWN_TOOL),
    (ToolErrorKind.AUTHORIZATION, AUTHORIZATION),
    (ToolErrorKind.NOT_FOUND, NOT_FOUND),
    (ToolErrorKind.ARGUMENT_VALIDATION, ARGUMENTS),
)
