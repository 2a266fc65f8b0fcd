"""Stored trajectories as conversations."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory
from hillclimb.stats.trajectories.response import split_response
from hillclimb.stats.trajectories.stored import conversation_of
from tests.hillclimb.client.payloads import trajectory_json

CALL = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'


def turn(response: str, **changes: Any) -> dict[str, Any]:
    return {
        "response": response,
        "tool_name": None,
        "tool_arguments": None,
        "observation": None,
        "is_error": False,
        "call_index": 0,
    } | changes


def stored(*turns: dict[str, Any], **changes: Any) -> StoredTrajectory:
    facts = trajectory_json(1) | {"turns": list(turns), "turn_tokens": []} | changes
    return StoredTrajectory.model_validate(facts)


def test_calls_of_one_model_turn_stay_together() -> None:
    first = turn(f"<think>both</think>{CALL}{CALL}", tool_name="add", observation="1")
    second = turn("", tool_name="add", observation="2", call_index=1)
    last = turn("All added. <done>")
    tokens = [
        {"num_tokens": 9, "num_thinking_tokens": 3},
        {"num_tokens": 4, "num_thinking_tokens": 0},
    ]
    whole = conversation_of(stored(first, second, last, turn_tokens=tokens), pass_threshold=1.0)
    assert [len(each.calls) for each in whole.turns] == [2, 0]
    assert [each.answer for each in whole.calls()] == ["1", "2"]
    assert (whole.turns[0].thinking, whole.turns[0].text) == ("both", "")
    assert (whole.turns[1].text, whole.turns[1].says_done) == ("All added.", True)
    assert whole.thinking_share == pytest.approx(3 / 13)
    assert whole.passed is True


def test_an_unreadable_call_is_a_call_and_a_request_for_one_is_a_reply() -> None:
    unreadable = turn("<tool_call>{oops</tool_call>", observation="not valid JSON", is_error=True)
    silent = turn("Thinking aloud.", observation="call a tool", is_error=True)
    whole = conversation_of(stored(unreadable, silent), pass_threshold=1.0)
    assert [call.name for call in whole.calls()] == [None]
    assert [each.reply for each in whole.turns] == [None, "call a tool"]


def test_a_turn_that_was_cut_within_a_call_made_none() -> None:
    cut = conversation_of(stored(turn('<tool_call>{"name": "add", "argu')), pass_threshold=1.0)
    assert list(cut.calls()) == []


def test_the_threshold_decides_what_passed() -> None:
    half = {"status": "graded", "score": 0.5, "reason": None}
    trajectory = stored(turn("<done>"), outcome=half)
    assert conversation_of(trajectory, pass_threshold=0.5).passed is True
    assert conversation_of(trajectory, pass_threshold=0.6).passed is False
    missing = stored(turn("<done>"), outcome={"status": "ungraded", "reason": "no_score"})
    assert conversation_of(missing, pass_threshold=0.5).passed is None


@pytest.mark.parametrize(
    ("response", "thinking", "text", "says_done", "has_call"),
    [
        ("", "", "", False, False),
        ("plain", "", "plain", False, False),
        ("<think>a</think>b<done>c", "a", "b", True, False),
        ("opened before</think> b", "opened before", "b", False, False),
        (f"x<done></think>{CALL}", "x<done>", "", False, True),
        ("<think>never closed <done>", "never closed <done>", "", False, False),
        (f"<think>{CALL}</think>{CALL} rest", CALL, "rest", False, True),
        ("<tool_call>{unclosed <done>", "", "", False, True),
        ("<THINK>a</THINK>b <Done/>", "a", "b", True, False),
    ],
)
def test_a_response_is_split_by_the_parsers_rules(
    response: str, thinking: str, text: str, says_done: bool, has_call: bool
) -> None:
    parts = split_response(response)
    assert (parts.thinking, parts.text) == (thinking, text)
    assert (parts.says_done, parts.has_call) == (says_done, has_call)
