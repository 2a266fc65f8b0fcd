"""What one turn of text becomes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.envs.base import ToolCall
from trainer.rollouts.parsing import MAX_DEPTH, MalformedCall, parse_turn
from trainer.rollouts.prompts import render_call

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)
FRAGMENTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "<function_call>", "</function_call>", "<think>"),
        *("</think>", "<done>", "<DONE>", '{"name":', '"search"', ', "arguments": ', "{", "}"),
        *("[", "]", '"', "\\", "9" * 5000, "[" * 2000, '{"a":' * 2000, "NaN", "1e999"),
        *("\ud800", "\\ud800", "\n", "plain "),
    ]
)


def call(name: str = "search", **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def problem_of(text: str) -> str:
    (malformed,) = parse_turn(text).calls
    assert isinstance(malformed, MalformedCall)
    return malformed.problem


@given(
    name=st.text("abcdef_", min_size=1),
    arguments=st.dictionaries(st.text("abc"), JSON_VALUES, max_size=3),
)
@settings(deadline=None)
def test_every_rendered_call_is_read_back_unchanged(name: str, arguments: dict) -> None:
    turn = parse_turn(render_call(name, arguments))
    assert turn.calls == (ToolCall(name=name, arguments=arguments),)
    assert not turn.done
    assert turn.answer == ""


@given(parts=st.lists(FRAGMENTS, max_size=25))
@settings(max_examples=300, deadline=None)
def test_no_sequence_of_fragments_raises_and_calls_can_be_stored_as_json(parts: list[str]) -> None:
    for item in parse_turn("".join(parts)).calls:
        if isinstance(item, ToolCall):
            json.dumps(dict(item.arguments), allow_nan=False).encode()
        else:
            assert item.problem.isprintable()


@given(text=st.text())
@settings(deadline=None)
def test_arbitrary_text_never_raises(text: str) -> None:
    parse_turn(text)


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_a_missing_close_tag_and_up_to_three_missing_braces_are_supplied(missing: int) -> None:
    whole = '{"name": "search", "arguments": {"where": {"city": "Brno"}}}'
    turn = parse_turn("<tool_call>" + whole[: len(whole) - missing])
    assert turn.calls == (call(where={"city": "Brno"}),)


def test_a_fourth_missing_brace_is_an_error() -> None:
    assert "not valid JSON" in problem_of('<tool_call>{"name": "a", "arguments": {"b": {"c": {')


def test_text_cut_inside_a_string_is_an_error() -> None:
    assert "not valid JSON" in problem_of('<tool_call>{"name": "search", "arguments": {"city": "Br')


def test_tags_inside_a_thought_do_not_count() -> None:
    turn = parse_turn('<think><done> <tool_call>{"name": "x"}</tool_call></think>Hello')
    assert turn.calls == ()
    assert not turn.done
    assert turn.answer == "Hello"


def test_an_unclosed_thought_hides_the_rest_of_the_turn() -> None:
    assert parse_turn("ok <think> <done>") == parse_turn("ok")


def test_a_thought_opened_by_the_generation_prompt_is_skipped() -> None:
    turn = parse_turn('maybe <done>? no</think><tool_call>{"name": "x"}</tool_call>')
    assert turn.calls == (call("x"),)
    assert not turn.done


def test_a_thought_tag_inside_an_argument_is_data() -> None:
    turn = parse_turn(render_call("comment", {"body": "use <think> and <done>"}))
    assert turn.calls == (call("comment", body="use <think> and <done>"),)
    assert not turn.done


def test_a_close_tag_inside_an_argument_is_data() -> None:
    text = render_call("comment", {"body": "</tool_call>"})
    assert parse_turn(text).calls == (call("comment", body="</tool_call>"),)


def test_all_calls_of_a_turn_come_back_in_order_good_and_bad() -> None:
    text = '<tool_call>{"name": "a"}</tool_call><tool_call>junk</tool_call><tool_call>{"name": "b"}'
    first, second, third = parse_turn(text).calls
    assert (first, third) == (call("a"), call("b"))
    assert isinstance(second, MalformedCall)


@pytest.mark.parametrize("word", ["<done>", "<DONE>", "The answer is 4.\n<done>"])
def test_done_counts_in_any_case_and_with_text_around_it(word: str) -> None:
    assert parse_turn(word).done


def test_done_in_an_unread_call_body_ends_that_body() -> None:
    turn = parse_turn('<tool_call>{"name": "a", "arguments": {}<done>')
    assert turn.calls == (call("a"),)
    assert turn.done


def test_what_follows_done_is_ignored() -> None:
    turn = parse_turn('42 <done> <tool_call>{"name": "a"}</tool_call>')
    assert turn.calls == ()
    assert turn.done
    assert turn.answer == "42"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("[1, 2]", "must be a JSON object"),
        ('"search"', "must be a JSON object"),
        ("12", "must be a JSON object"),
        ("{}", 'needs a "name"'),
        ('{"name": 3}', 'needs a "name"'),
        ('{"name": "a", "arguments": [1]}', '"arguments" must be a JSON object'),
        ('{"name": "a", "arguments": "no"}', '"arguments" must be a JSON object'),
        ('{"name": "a"} {"name": "b"}', "more than one JSON object"),
        ('{"name": "a", "arguments": {"n": ' + "9" * 5000 + "}}", "an integer is too long"),
        ('{"name": "a", "arguments": {"n": NaN}}', "NaN is not JSON"),
        ('{"name": "a", "arguments": {"n": 1e999}}', "a number is too large"),
        ('{"name": "a", "arguments": {"n": "\\ud800"}}', "not valid Unicode"),
        ('{"name": "a", "arguments": {"n": ' + "[" * 99 + "]" * 99 + "}}", "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("", "not valid JSON"),
    ],
)
def test_what_cannot_be_read_says_why(body: str, words: str) -> None:
    assert words in problem_of(f"<tool_call>{body}</tool_call>")


def test_nesting_within_the_limit_is_kept() -> None:
    depth = MAX_DEPTH - 4
    body = '{"name": "a", "arguments": {"n": ' + "[" * depth + "]" * depth + "}}"
    (item,) = parse_turn(f"<tool_call>{body}</tool_call>").calls
    assert isinstance(item, ToolCall)


def test_older_spellings_are_accepted() -> None:
    expected = (call("a", b=1),)
    assert parse_turn('<function_call>{"tool": "a", "params": {"b": 1}}').calls == expected
    assert parse_turn('<tool_call>{"name": "a", "arguments": "{\\"b\\": 1}"}').calls == expected
