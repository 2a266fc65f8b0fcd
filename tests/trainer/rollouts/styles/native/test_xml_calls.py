"""Calls with a tag for each argument, whose types only the tool's schema tells."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from hillclimb.environment.base import ToolCall, ToolSpec
from tests.trainer.rollouts.chat.turns import TAGS, TEXT, turns
from trainer.rollouts.chat.parsing import MalformedCall, parse_turn
from trainer.rollouts.styles.native.rules import NativeRules
from trainer.rollouts.styles.native.xml_calls import parse_xml_turn

PROPERTIES: dict[str, JsonValue] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "share": {"type": ["number", "null"]},
    "on": {"type": "boolean"},
    "list": {"type": "array"},
    "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    "level": {"enum": [1, 2, "high", None]},
    "filter": {"$ref": "#/$defs/Filter"},
    "loop": {"$ref": "#/$defs/Loop"},
    "any": {},
}
SEARCH = ToolSpec(
    name="search",
    description="Finds.",
    parameters={
        "type": "object",
        "properties": PROPERTIES,
        "$defs": {"Filter": {"type": "object"}, "Loop": {"$ref": "#/$defs/Loop"}},
    },
)


def written(*arguments: tuple[str, str], name: str = "search") -> str:
    """A call as the template writes it."""
    values = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments)
    return f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>"


def only_call(text: str) -> ToolCall | MalformedCall:
    (call,) = parse_xml_turn(text, [SEARCH]).calls
    return call


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        *(
            ("text", text, text)
            for text in ("1", "true", "[1]", "", "\n", " a\n b ", "</parameter>")
        ),
        *(("count", "-12", -12), ("count", "1.5", "1.5"), ("count", "many", "many")),
        *(("share", "0.5", 0.5), ("share", "1e-07", 1e-07), ("share", "2", 2)),
        *(("share", "None", None), ("share", "null", None), ("share", "True", "True")),
        *(("on", "True", True), ("on", "false", False), ("on", "1", "1")),
        *(("list", '["a", 1]', ["a", 1]), ("list", "[1", "[1"), ("list", "{}", "{}")),
        *(("either", "7", 7), ("either", "seven", "seven"), ("either", "9" * 30, "9" * 30)),
        *(("level", "2", 2), ("level", "high", "high"), ("level", "None", None)),
        *(("filter", '{"a": null}', {"a": None}), ("loop", "1", "1"), ("any", "1", "1")),
        ("unknown", "1", "1"),
    ],
)
def test_a_value_has_a_type_that_the_schema_allows(key: str, text: str, value: JsonValue) -> None:
    assert only_call(written((key, text))) == ToolCall(name="search", arguments={key: value})


def test_a_value_without_line_breaks_and_a_tool_that_is_unknown_are_read_too() -> None:
    bare = "<tool_call><function=search><parameter=count>3</parameter></function></tool_call>"
    assert only_call(bare) == ToolCall(name="search", arguments={"count": 3})
    assert only_call(written(("count", "3"), name="other")) == ToolCall(
        name="other", arguments={"count": "3"}
    )
    assert only_call(written()) == ToolCall(name="search", arguments={})


def test_thoughts_words_and_several_calls_are_read_as_ever() -> None:
    two = f"{written(('count', '1'))}\n{written(('text', '<done> <think> <tool_call>'))}"
    turn = parse_xml_turn(f"Where? <done></think>\n\nI look.\n\n{two}", [SEARCH])
    assert turn.calls == (
        ToolCall(name="search", arguments={"count": 1}),
        ToolCall(name="search", arguments={"text": "<done> <think> <tool_call>"}),
    )
    assert (turn.done, turn.answer) == (False, "I look.")
    assert parse_xml_turn("It is 4. <done>", [SEARCH]).done


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<tool_call>{"name": "search"}</tool_call>', "has no function"),
        ("<tool_call><function=search><parameter=text>\nBrno", "parameter text of the tool call"),
        ("<tool_call><function=search></tool_call>", "the function of the tool call is not closed"),
        (written(name=" "), 'the tool call needs a "name"'),
        (written(("count", "1"), ("count", "2")), "the parameter count occurs twice"),
        (written(("count", "9" * 30)), "an integer is too long"),
        (written(("filter", '{"a": 1, "a": 2}')), "occurs twice"),
        (written(("list", "[" * 40 + "]" * 40)), "nested too deeply"),
        (
            written().replace("</function>", "</function><function=b></function>"),
            "something follows the function",
        ),
    ],
)
def test_a_call_that_cannot_be_read_is_named_and_the_next_one_is_read(
    text: str, problem: str
) -> None:
    call = only_call(text)
    assert isinstance(call, MalformedCall)
    assert problem in call.problem
    if text.endswith("</tool_call>"):
        _, after = parse_xml_turn(f"{text}\n{written()}", [SEARCH]).calls
        assert after == ToolCall(name="search", arguments={})


def test_a_cut_call_is_read_only_where_nothing_could_follow() -> None:
    text = written(("count", "12"))
    function = text.index("</function>") + len("</function>")
    for cut in range(len("<tool_call>"), len(text)):
        call = only_call(text[:cut])
        assert isinstance(call, ToolCall) == (cut >= function), text[:cut]


PIECES = st.one_of(
    turns(),
    TEXT,
    st.sampled_from([*TAGS, "<function=search>", "<function=", "</function>", "\n"]),
    st.sampled_from(["<parameter=text>\n", "<parameter=count>", "\n</parameter>\n", "=>", "12"]),
    st.builds(lambda key, value: written((key, value)), st.sampled_from([*PROPERTIES]), TEXT),
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_no_text_raises_and_turns_without_calls_are_read_as_ever(text: str) -> None:
    parsed = parse_xml_turn(text, [SEARCH])
    if "_call>" not in text.lower():
        assert parsed == parse_turn(text)


@pytest.mark.parametrize(
    "piece",
    [
        *("<tool_call>", "<tool_call><function=a>", "<tool_call><function=a><parameter=b>"),
        *("<parameter=b>", "</parameter>", "</parameter>\n", "</function>", "\n", "<function="),
        "<tool_call><function=a></function>",
    ],
)
def test_the_time_is_linear_in_the_text(piece: str) -> None:
    def seconds(number: int) -> float:
        text = "<tool_call><function=search><parameter=text>" + piece * number
        began = time.process_time()
        parse_xml_turn(text, [SEARCH])
        return time.process_time() - began

    assert seconds(40_000) < 2.0


def test_a_turn_without_a_call_is_told_the_form() -> None:
    assert "<function=NAME>" in NativeRules("xml").no_call
    assert NativeRules("xml").parse(written(("count", "1")), [SEARCH]).calls == (
        ToolCall(name="search", arguments={"count": 1}),
    )
