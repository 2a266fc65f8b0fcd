"""The marked text of a response becomes turns: what each model turn said, called and was told."""

from __future__ import annotations

import json
import time

import pytest

from hillclimb.stats.trajectories.skyrl.turns import is_cut_off, prompt_text, response_turns

END, USER, MODEL = "<|im_end|>", "<|im_start|>user\n", "<|im_start|>assistant\n"


def call(name: str = "f", **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def told(*answers: str) -> str:
    blocks = "\n".join(f"<tool_response>\n{each}\n</tool_response>" for each in answers)
    return f"{END}\n{USER}{blocks}{END}\n{MODEL}"


def facts(response: str) -> list[tuple[str, str | None, object, str | None, int]]:
    return [
        (t.response, t.tool_name, t.tool_arguments, t.observation, t.call_index)
        for t in response_turns(response)
    ]


def test_turns_have_their_calls_and_answers() -> None:
    first, second = call(a=1), call("g")
    assert facts(first + told("one") + second + told("two") + "Bye <done>" + END) == [
        (first, "f", {"a": 1}, "one", 0),
        (second, "g", {}, "two", 0),
        ("Bye <done>", None, None, None, 0),
    ]


def test_a_turn_without_a_call_has_the_reply() -> None:
    assert facts("hm" + told('{"error": "call a tool"}') + "<done>") == [
        ("hm", None, None, '{"error": "call a tool"}', 0),
        ("<done>", None, None, None, 0),
    ]


def test_text_of_the_environment_without_marks_is_the_answer() -> None:
    response = f"{call()}{END}\n{USER}Tool result:\nok{END}\n{MODEL}<done>"
    assert facts(response)[0][3] == "Tool result:\nok"


def test_answers_that_match_the_calls_are_shared_out_and_others_go_to_the_first() -> None:
    both = call("f") + call("g")
    assert [each[3] for each in facts(both + told("1", "2"))] == ["1", "2"]
    assert [each[3] for each in facts(both + told("1"))] == ["1", None]
    assert [each[3] for each in facts(both + told("1", "2", "3"))] == ["1\n2\n3", None]
    assert [each[4] for each in facts(both + told("1"))] == [0, 1]
    assert [each[0] for each in facts(both)] == [both, ""]


@pytest.mark.parametrize(
    ("body", "name", "arguments"),
    [
        ('{"tool": "f", "params": {"a": 1}}', "f", {"a": 1}),
        ('{"name": "f"}', "f", {}),
        ('{"name": "f", "arguments": {"a": {"b": 1}', "f", {"a": {"b": 1}}),
        ('{"name": "f", "arguments": {"a": {"b": {"c": {"d": 1', None, None),
        ('{"name": 1, "arguments": {}}', None, None),
        ('{"name": "f", "arguments": []}', None, None),
        ('{"name": "f", "arguments": {"a": NaN}}', None, None),
        ('["f"]', None, None),
        ("f()", None, None),
        ('{"name": "f", "arguments": ' + "[" * 65 + "]" * 65 + "}", None, None),
        ('{"name": "f", "arguments": {"a": ' + "[" * 60 + "]" * 60 + "}}", "f", ...),
    ],
)
def test_a_call_is_read_as_fleets_environment_reads_it(
    body: str, name: str | None, arguments: object
) -> None:
    (turn,) = response_turns(f"<tool_call>{body}</tool_call>")
    assert turn.tool_name == name
    assert arguments is ... or turn.tool_arguments == arguments


def test_calls_within_thoughts_and_after_done_do_not_count() -> None:
    assert [t.tool_name for t in response_turns(f"<think>{call()}</think>{call('g')}")] == ["g"]
    assert [t.tool_name for t in response_turns(f"<done>{call()}")] == [None]
    assert [t.tool_name for t in response_turns(f"{call()}</think>{call('g')}")] == ["g"]


def test_a_response_without_markers_is_one_turn_and_an_empty_one_is_none() -> None:
    assert facts("just text") == [("just text", None, None, None, 0)]
    assert facts("") == facts(END) == []


def test_the_prompt_is_its_messages_without_markers() -> None:
    prompt = f"<|im_start|>system\nBe good.{END}\n{USER}Do it.{END}\n{MODEL}"
    assert prompt_text(prompt) == "Be good.\n\nDo it."
    assert prompt_text("plain") == "plain"


def test_a_last_message_without_its_end_is_cut_off() -> None:
    assert is_cut_off(f"a{told('b')}c")
    assert not is_cut_off(f"a{told('b')}c{END}")
    assert not is_cut_off("")


@pytest.mark.parametrize(
    "text",
    ["<tool_response>", "<tool_call>", "<|im_start|>user\n<tool_response>", "{" * 9, "<think>"],
)
def test_the_time_is_linear_in_the_text(text: str) -> None:
    started = time.perf_counter()
    response_turns(f"a{END}\n{USER}" + text * (2_000_000 // len(text)))
    assert time.perf_counter() - started < 10.0
