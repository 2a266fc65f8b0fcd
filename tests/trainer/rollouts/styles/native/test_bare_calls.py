"""Calls that are a whole turn."""

from __future__ import annotations

import json

import pytest
from hypothesis import given

from hillclimb.environment.base import ToolCall
from tests.trainer.rollouts.chat.turns import ARGUMENTS, NAMES, turns
from trainer.rollouts.chat.parsing import MalformedCall, parse_turn
from trainer.rollouts.styles.native.bare_calls import parse_bare_turn


@given(NAMES, ARGUMENTS)
def test_what_is_written_is_read(name: str, arguments: dict[str, object]) -> None:
    text = json.dumps({"name": name, "parameters": arguments}, ensure_ascii=False)
    assert parse_bare_turn(text).calls == (ToolCall(name=name, arguments=arguments),)  # type: ignore[arg-type]


@given(turns())
def test_no_text_raises_and_other_turns_are_read_as_ever(text: str) -> None:
    parsed = parse_bare_turn(text)
    if "{" not in text.lstrip()[:1] and "<|python_tag|>" not in text:
        assert parsed == parse_turn(text)


def test_what_follows_the_object_is_read_too() -> None:
    turn = parse_bare_turn('<|python_tag|>{"name": "a", "arguments": {"b": "<done>"}}\nThat is it.')
    assert turn.calls == (ToolCall(name="a", arguments={"b": "<done>"}),)
    assert (turn.done, turn.answer) == (False, "That is it.")
    assert parse_bare_turn('{"name": "a"} <done>').done
    assert parse_bare_turn("It is 4. <done>").calls == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"name": "a", "parameters": {"b": 1}', "the tool call is not valid JSON"),
        ('{"name": "a", "parameters": [1]}', '"parameters" must be a JSON object'),
        ('{"parameters": {}}', 'the tool call needs a "name"'),
        ('{"name": "a", "parameters": {}, "arguments": {}}', 'holds "parameters" beside'),
        ('{"name": "a", "parameters": {"b": NaN}}', "not readable"),
    ],
)
def test_a_call_that_cannot_be_read_is_named(text: str, problem: str) -> None:
    (call,) = parse_bare_turn(text).calls
    assert isinstance(call, MalformedCall)
    assert problem in call.problem
