"""What one turn of text becomes."""

from __future__ import annotations

import pytest

from hillclimb.environment.base import ToolCall
from trainer.rollouts.chat.parsing import MAX_DEPTH, MalformedCall, parse_turn
from trainer.rollouts.chat.prompts import render_call


def call(name: str = "search", **arguments: object) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def problem_of(text: str) -> str:
    (malformed,) = parse_turn(text).calls
    assert isinstance(malformed, MalformedCall)
    return malformed.problem


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_a_missing_close_tag_and_up_to_three_missing_braces_are_supplied(missing: int) -> None:
    whole = '{"name": "search", "arguments": {"where": {"city": "Brno"}}}'
    turn = parse_turn("<tool_call>" + whole[: len(whole) - missing])
    assert turn.calls == (call(where={"city": "Brno"}),)


def test_a_fourth_missing_brace_is_an_error() -> None:
    assert "not valid JSON" in problem_of('<tool_call>{"name": "a", "arguments": {"b": {"c": {')


def test_text_cut_inside_a_string_is_an_error() -> None:
    assert "not valid JSON" in problem_of('<tool_call>{"name": "search", "arguments": {"city": "Br')


@pytest.mark.parametrize(
    "cut",
    [
        '{"name": "book", "arguments": {"nights": 1',
        '{"name": "book", "arguments": {"share": 0.5',
        '{"name": "book"',
        '{"name": "book", "arguments": {',
        '{"name": "book", "arguments": {"city"',
        '{"name": "book", "arguments": {"city": "Brno",',
        '{"name": "book", "arguments": {"is_flexible": tru',
    ],
)
def test_what_more_text_could_have_changed_is_not_mended(cut: str) -> None:
    assert "not valid JSON" in problem_of(f"<tool_call>{cut}")
    assert "not valid JSON" in problem_of(f"<tool_call>{cut}</tool_call>")


@pytest.mark.parametrize("end", ["true", "false", "null", '"Brno"', "[1]", "{}"])
def test_braces_are_supplied_after_a_value_that_is_whole(end: str) -> None:
    (item,) = parse_turn(f'<tool_call>{{"name": "book", "arguments": {{"x": {end}').calls
    assert isinstance(item, ToolCall)


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


@pytest.mark.parametrize("tag", ["<think>", "</think>", "<done>", "<tool_call>", "</Tool_Call>"])
def test_a_tag_inside_an_argument_is_data(tag: str) -> None:
    turn = parse_turn(render_call("comment", {"body": f"use {tag} here"}))
    assert turn.calls == (call("comment", body=f"use {tag} here"),)
    assert not turn.done


@pytest.mark.parametrize("tag", ["<think>", "<done>", "<tool_call>"])
def test_a_tag_in_the_text_of_an_unreadable_call_is_no_tag(tag: str) -> None:
    body = f'{{"name": "comment", "arguments": {{"body": "use {tag}", oops}}}}'
    turn = parse_turn(f"<tool_call>{body}</tool_call> and <done>")
    assert [type(item) for item in turn.calls] == [MalformedCall]
    assert turn.done
    assert turn.answer == "and"


def test_text_that_no_quote_closes_takes_the_rest_of_the_turn_with_it() -> None:
    turn = parse_turn('<tool_call>{"name": "comment", "arguments": {"body": "well <done> and')
    assert [type(item) for item in turn.calls] == [MalformedCall]
    assert not turn.done


def test_tags_are_read_in_any_case() -> None:
    turn = parse_turn('<Think><done></THINK><Tool_Call>{"name": "a"}</TOOL_CALL><Done>')
    assert turn.calls == (call("a"),)
    assert turn.answer == ""
    assert turn.done


def test_a_close_tag_inside_an_argument_is_data() -> None:
    text = render_call("comment", {"body": "</tool_call>"})
    assert parse_turn(text).calls == (call("comment", body="</tool_call>"),)


def test_all_calls_of_a_turn_come_back_in_order_good_and_bad() -> None:
    text = '<tool_call>{"name": "a"}</tool_call><tool_call>junk</tool_call><tool_call>{"name": "b"}'
    first, second, third = parse_turn(text).calls
    assert (first, third) == (call("a"), call("b"))
    assert isinstance(second, MalformedCall)


@pytest.mark.parametrize("word", ["<done>", "<DONE>", "<done/>", "<done />", "It is 4.\n<done>"])
def test_done_counts_in_any_case_and_with_text_around_it(word: str) -> None:
    assert parse_turn(word).done


def test_done_in_square_brackets_is_a_ticked_box_and_no_end() -> None:
    assert not parse_turn("- [done] looked up the hotel\n- book it").done


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
        ('{"name": "a"} {"name": "b"}', "something follows the JSON object"),
        ('{"name": "a", "arguments": {"n": ' + "9" * 5000 + "}}", "an integer is too long"),
        ('{"name": "a", "arguments": {"n": NaN}}', "NaN is not JSON"),
        ('{"name": "a", "arguments": {"n": 1e999}}', "a number is too large"),
        ('{"name": "a", "arguments": {"n": "\\ud800"}}', "not valid Unicode"),
        ('{"name": "a", "arguments": {"n": ' + "[" * 99 + "]" * 99 + "}}", "nested too deeply"),
        ("[" * 100_000, "nested too deeply"),
        ("", "not valid JSON"),
        ('```json\n{"name": "a"}\n```', "in a code fence"),
        ("{'name': 'a', 'arguments': {}}", "double quotes"),
        ('{"name": "a", "arguments": {"b": "one\ntwo"}}', "written \\n"),
        ('{"name": "a", "name": "b", "arguments": {}}', 'the key "name" occurs twice'),
        ('{"name": "a", "arguments": {"b": 1, "b": 2}}', 'the key "b" occurs twice'),
        ('{"name": "a", "arguments": "{\\"b\\": 1, \\"b\\": 2}"}', 'the key "b" occurs twice'),
        ('{"name": "a", "city": "Brno"}', '"city" beside "name" and "arguments"'),
        ('{"name": "a", "tool": "b", "arguments": {}}', '"tool" beside'),
        ('{"name": "a", "arguments": {}}}', "something follows the JSON object"),
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
