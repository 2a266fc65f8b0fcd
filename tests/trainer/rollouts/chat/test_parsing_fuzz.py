"""What holds for every turn: 100 inputs per claim by default, `make fuzz` tries thousands."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from hillclimb.environment.base import ToolCall
from tests.trainer.rollouts.chat.turns import ARGUMENTS, CALLS, NAMES, TAGS, TEXT, turns
from trainer.rollouts.chat.parsing import MalformedCall, parse_turn
from trainer.rollouts.chat.prompts import render_call

Call = ToolCall | MalformedCall


def told(calls: Sequence[Call]) -> str:
    """Which kinds of calls a turn had, for the statistics of a run."""
    kinds = {"malformed" if isinstance(call, MalformedCall) else "call" for call in calls}
    return " and ".join(sorted(kinds)) or "no call"


@given(text=turns())
def test_no_turn_raises_and_what_it_gives_can_be_stored_and_shown(text: str) -> None:
    parsed = parse_turn(text)
    event(told(parsed.calls))
    for call in parsed.calls:
        if isinstance(call, ToolCall):
            json.dumps(dict(call.arguments), allow_nan=False).encode()
        else:
            assert call.problem.isprintable()
            assert len(call.problem) < 200


@given(text=st.text())
def test_no_text_raises(text: str) -> None:
    parse_turn(text)


@given(text=turns())
def test_a_call_that_was_read_is_the_same_when_written_and_read_again(text: str) -> None:
    for call in parse_turn(text).calls:
        if isinstance(call, ToolCall):
            again = parse_turn(render_call(call.name, call.arguments))
            assert again.calls == (call,)
            assert not again.done
            assert again.answer == ""


@given(name=NAMES, arguments=ARGUMENTS)
def test_every_call_is_read_as_it_was_written(name: str, arguments: dict[str, object]) -> None:
    expected = ToolCall(name=name, arguments=arguments)
    for text in (
        render_call(name, arguments),
        f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n",
        f"<function_call>{json.dumps({'tool': name, 'params': arguments})}</FUNCTION_CALL>",
    ):
        assert parse_turn(text).calls == (expected,)


@given(calls=st.lists(CALLS, max_size=4), between=TEXT)
def test_calls_in_a_row_are_read_as_each_is_alone(calls: list[str], between: str) -> None:
    alone = tuple(call for text in calls for call in parse_turn(text).calls)
    assert parse_turn(between.replace("<", "").join(calls)).calls == alone


@given(call=CALLS, thought=TEXT, tag=st.sampled_from(TAGS))
def test_a_thought_changes_nothing(call: str, thought: str, tag: str) -> None:
    inside = f"{thought}{tag}{call}".replace("</", "")
    assert parse_turn(f"<think>{inside}</think>{call}") == parse_turn(call)


@given(text=turns(), cut=st.integers(0, 400))
def test_a_turn_that_was_cut_off_says_nothing_that_the_whole_does_not(text: str, cut: int) -> None:
    if "</think>" in text.lower():
        return  # what comes before a lone </think> was no speech, which nobody could know earlier
    whole, part = parse_turn(text), parse_turn(text[:cut])
    assert part.calls[:-1] == whole.calls[: max(0, len(part.calls) - 1)]
    assert len(part.calls) <= len(whole.calls)
    for said, meant in zip(part.calls[-1:], whole.calls[len(part.calls) - 1 :], strict=False):
        event(f"{told([said])} of {told([meant])}")
        assert may_become(said, meant)


def may_become(said: Call, meant: Call) -> bool:
    """Whether a cut call may be read so: not at all, or as it is but for what braces completed."""
    if isinstance(said, MalformedCall) or isinstance(meant, MalformedCall):
        return True
    return said.name == meant.name and is_begun(said.arguments, meant.arguments)


def is_begun(part: object, whole: object) -> bool:
    """Whether `part` is `whole`, or its beginning as far as objects go."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        same = list(whole)[: len(part)] == list(part)
        return same and all(is_begun(part[key], whole[key]) for key in part)
    return part == whole


PATHOLOGICAL = {
    "empty calls": "<tool_call>",
    "junk calls": "<tool_call>x",
    "closed junk": "<tool_call>x</tool_call>",
    "open objects": '<tool_call>{"name": "a", "arguments": {',
    "open text": '<tool_call>{"name": "a", "arguments": {"b": "',
    "cut numbers": '<tool_call>{"name": "a", "arguments": {"b": 1',
    "missing braces": '<tool_call>{"name": "a", "arguments": {"b": 1}',
    "brackets": "[",
    "nested": '{"a":',
    "thoughts": "<think>",
    "closed thoughts": "<think></think>",
    "ends of thoughts": "</think>",
    "done": "<done ",
    "spaces": "<tool_call>                    ",
    "both ways quoted": '<tool_call>["",",',
    "quotes": '","',
    "backslashes": "\\",
    "almost tags": "<tool_cal",
    "two kinds": "<tool_call>{<function_call>{",
    "keys": '"a": 1, ',
}


QUICK_S = 0.05
"""Too little to be told from noise, however long the text."""


def seconds_of(text: str, *, quick_s: float = 0.0) -> float:
    """CPU time of one parse, the best of three or the first that is quick."""
    best = float("inf")
    for _ in range(3):
        began = time.process_time()
        parse_turn(text)
        best = min(best, time.process_time() - began)
        if best < quick_s:
            break
    return best


@pytest.mark.parametrize("prefix", ["", "<tool_call>", '<tool_call>{"name": "', "<tool_call>["])
@pytest.mark.parametrize("unit", PATHOLOGICAL.values(), ids=PATHOLOGICAL.keys())
def test_time_grows_with_the_length_and_no_faster(prefix: str, unit: str) -> None:
    short, long = (prefix + unit * (size // len(unit)) for size in (20_000, 160_000))
    took = seconds_of(long, quick_s=QUICK_S)
    assert took < QUICK_S or took < 24 * seconds_of(short), "8 times the text, 24 times the time"
