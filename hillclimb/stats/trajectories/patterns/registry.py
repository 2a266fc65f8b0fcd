"""The failure patterns, in the order in which they are listed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from hillclimb.stats.trajectories.conversation import Conversation
from hillclimb.stats.trajectories.errors.kinds import ToolErrorKind
from hillclimb.stats.trajectories.patterns.completion import false_completion, premature_done
from hillclimb.stats.trajectories.patterns.endings import (
    cannot_signal_done,
    context_overflow,
    max_turns,
)
from hillclimb.stats.trajectories.patterns.identifiers import hallucinated_parameter
from hillclimb.stats.trajectories.patterns.pattern import Detect, Evidence, Pattern, Severity
from hillclimb.stats.trajectories.patterns.refusals import refused_as
from hillclimb.stats.trajectories.patterns.repetition import tool_repetition
from hillclimb.stats.trajectories.patterns.responses import no_environment_response
from hillclimb.stats.trajectories.patterns.thinking import excessive_thinking, thought_repetition

PATTERNS_VERSION = 1
"""Version of the detectors: it rises with every change of what one of them finds."""
_SEVERITY = {"C": Severity.CRITICAL, "H": Severity.HIGH, "M": Severity.MEDIUM, "L": Severity.LOW}
_ROWS: tuple[tuple[str, str, str, Detect], ...] = (
    (
        "no_environment_response",
        "C",
        "at least half of its calls got no answer",
        no_environment_response,
    ),
    (
        "excessive_thinking",
        "C",
        "thoughts are at least 75 % of what it sampled, and at least 512 tokens",
        excessive_thinking,
    ),
    (
        "cannot_signal_done",
        "C",
        "its last two or more turns have neither a call nor `<done>`",
        cannot_signal_done,
    ),
    (
        "tool_repetition",
        "H",
        "it made one call three times or more, in a row or not, and got the same answer",
        tool_repetition,
    ),
    ("max_turns", "H", "the turn limit stopped it", max_turns),
    (
        "thought_repetition",
        "M",
        "one thought recurs in three turns, or one sentence five times in its thoughts",
        thought_repetition,
    ),
    (
        "hallucinated_parameter",
        "M",
        "it named an identifier that occurs in nothing it had seen",
        hallucinated_parameter,
    ),
    (
        "premature_done",
        "L",
        "it said done and failed, after fewer than two successful calls",
        premature_done,
    ),
    (
        "argument_validation",
        "M",
        "a call was refused because of its arguments, or could not be read",
        refused_as(ToolErrorKind.ARGUMENT_VALIDATION, ToolErrorKind.UNREADABLE_CALL),
    ),
    (
        "authorization",
        "M",
        "a call was refused for lack of permission or authentication",
        refused_as(ToolErrorKind.AUTHORIZATION),
    ),
    (
        "not_found",
        "M",
        "a call named something that does not exist",
        refused_as(ToolErrorKind.NOT_FOUND),
    ),
    (
        "false_completion",
        "M",
        "it said done and failed, and its last words claim success",
        false_completion,
    ),
    (
        "context_overflow",
        "H",
        "the conversation no longer fitted the model's input",
        context_overflow,
    ),
)
PATTERNS: Mapping[str, Pattern] = MappingProxyType(
    {
        name: Pattern(name=name, severity=_SEVERITY[severity], definition=definition, detect=detect)
        for name, severity, definition, detect in _ROWS
    }
)


def detect_patterns(conversation: Conversation) -> dict[str, Evidence]:
    """Return the patterns of a conversation with their evidence, in the registry's order."""
    findings = {name: pattern.detect(conversation) for name, pattern in PATTERNS.items()}
    return {name: finding for name, finding in findings.items() if finding is not None}
