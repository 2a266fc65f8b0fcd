"""The detectors against labelled rollouts, whose author wrote them before there were detectors."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from hillclimb.protocol.outcomes import StopReason
from hillclimb.stats.trajectories.conversation import (
    Conversation,
    ConversationCall,
    ConversationTurn,
)
from hillclimb.stats.trajectories.errors.kinds import ToolErrorKind, classify
from hillclimb.stats.trajectories.patterns.registry import PATTERNS, detect_patterns
from tests.hillclimb.stats.trajectories.labelled import labelled_conversations

MIN_QUALITY = 0.95
MIN_CONVERSATIONS = 400


@pytest.mark.parametrize("name", PATTERNS)
def test_precision_and_recall_on_the_labels(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    labelled = labelled_conversations()
    detect = PATTERNS[name].detect
    shown = {each.name for each in labelled if detect(each.conversation) is not None}
    actual = {each.name for each in labelled if name in each.patterns}
    precision, recall = len(shown & actual) / len(shown), len(shown & actual) / len(actual)
    record_property("precision", precision)
    record_property("recall", recall)
    assert len(labelled) >= MIN_CONVERSATIONS
    assert min(precision, recall) >= MIN_QUALITY, sorted(shown ^ actual)


def test_every_labelled_pattern_has_a_detector() -> None:
    assert {name for each in labelled_conversations() for name in each.patterns} == set(PATTERNS)


def test_evidence_names_turns_that_exist_and_quotes_briefly() -> None:
    for each in labelled_conversations():
        for name, finding in detect_patterns(each.conversation).items():
            assert all(0 <= turn < len(each.conversation.turns) for turn in finding.turns), name
            assert 0 < len(finding.quote) <= 200


def hostile(unit: str, size: int) -> Conversation:
    text = unit * (size // len(unit))
    call = ConversationCall(name="find", arguments={"issue_id": text[:500]}, answer=text)
    turn = ConversationTurn(thinking=text, text=text, calls=(call,), says_done=True)
    return Conversation(
        task_key="t",
        env_key="e",
        prompt=text,
        turns=(turn,),
        stop_reason=StopReason.DONE,
        score=0.0,
        passed=False,
    )


@pytest.mark.parametrize(
    "unit",
    ["a", "a ", "error ", "Error: ", '"', "'x' ", "{", '{"error":', "no such ", "not allowed ",
     "missing required ", "A.b.C", "- ", "I-1 ", "4 0 4 ", "must be ", "\u2019", "a. ", "\n"],
)  # fmt: skip
def test_time_is_linear_in_the_text(unit: str) -> None:
    """Sixteen times the text may take forty times as long, which a quadratic rule exceeds."""
    short, long = hostile(unit, 20_000), hostile(unit, 320_000)
    bound = max(40 * min(seconds(short) for _ in range(3)), 0.17)
    # One look at the long text is enough, unless the machine did something else meanwhile.
    assert any(seconds(long) < bound for _ in range(3)), bound


def seconds(conversation: Conversation) -> float:
    """The CPU time of one look."""
    began = time.process_time()
    detect_patterns(conversation)
    return time.process_time() - began


@pytest.mark.parametrize(
    ("answer", "is_error", "kind"),
    [
        (None, True, None),
        ("  ", True, None),
        ("[]", False, None),
        ('{"ok": true, "error": null, "data": []}', False, None),
        ('{"issue": "I-1", "title": "404 not found on login", "status": "open"}', False, None),
        ("404 Main Street, Brno", False, None),
        ("Errors today: none", False, None),
        ('unknown argument "city"', True, ToolErrorKind.ARGUMENT_VALIDATION),
        ("MCP error -32602: Invalid arguments for x", False, ToolErrorKind.ARGUMENT_VALIDATION),
        ('{"detail": [{"loc": ["body", "city"], "msg": "field required"}]}', False,
         ToolErrorKind.ARGUMENT_VALIDATION),
        ("Error: 403 Forbidden", False, ToolErrorKind.AUTHORIZATION),
        ("only the assignee can close it", True, ToolErrorKind.AUTHORIZATION),
        ('{"error": {"code": 404, "message": "Hotel not found"}}', False, ToolErrorKind.NOT_FOUND),
        ('no hotel "H-9"', True, ToolErrorKind.NOT_FOUND),
        ('no tool "x", use one of a, b', True, ToolErrorKind.UNKNOWN_TOOL),
        ("issue is closed", True, ToolErrorKind.OTHER),
        ("room r3 is not free on 2026-03-14", True, ToolErrorKind.OTHER),
    ],
)  # fmt: skip
def test_answers_are_classified(
    answer: str | None, is_error: bool, kind: ToolErrorKind | None
) -> None:
    assert classify(answer, is_error=is_error) == kind
