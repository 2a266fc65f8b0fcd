"""Turns for the parser: built from what agents write, then damaged as engines and agents damage."""

from __future__ import annotations

import json

from hypothesis import strategies as st

from trainer.rollouts.chat.prompts import render_call

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
TAGS = (
    *("<tool_call>", "</tool_call>", "<function_call>", "</function_call>", "<think>", "</think>"),
    *("<done>", "<DONE>", "<done/>", "[done]", "<Tool_Call>", "</TOOL_CALL>", "</Think>"),
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**17), 10**17)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
    | st.sampled_from(TAGS)
    | st.builds("{}{}{}".format, TEXT, st.sampled_from(TAGS), TEXT),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
"""Every JSON value within the parser's limits, tags in its text included."""
ARGUMENTS = st.dictionaries(TEXT, JSON_VALUES, max_size=3)
NAMES = st.text("abcdef_", min_size=1, max_size=12)
CALLS = st.builds(render_call, NAMES, ARGUMENTS)

_BODIES = st.builds(
    lambda name, given: json.dumps({"name": name, "arguments": given}), NAMES, ARGUMENTS
)
_OLDER = st.builds(
    lambda name, given: (
        f"<function_call>{json.dumps({'tool': name, 'params': given})}</function_call>"
    ),
    NAMES,
    ARGUMENTS,
)
_WRONG = st.one_of(
    st.builds("<tool_call>{}".format, _BODIES),
    st.builds("<tool_call>\n{}\n</tool_call>".format, _BODIES),
    st.builds("<tool_call>{} and so on</tool_call>".format, _BODIES),
    st.builds("<tool_call>{}}}</tool_call>".format, _BODIES),
    st.builds(lambda body: f"<tool_call>{body[:-1]}</tool_call>", _BODIES),
    st.builds("<tool_call>```json\n{}\n```</tool_call>".format, _BODIES),
    st.builds("```json\n{}\n```".format, _BODIES),
    st.builds(
        lambda name, given: f"<tool_call>{ {'name': name, 'arguments': given} }</tool_call>",
        NAMES,
        ARGUMENTS,
    ),
    st.builds(
        '<tool_call>{{"name": "a", "name": "b", "arguments": {}}}</tool_call>'.format, JSON_VALUES
    ),
    st.builds("<tool_call>{}</tool_call>".format, JSON_VALUES.map(json.dumps)),
)
_THOUGHTS = st.builds(
    "<think>{}{}</think>".format, TEXT, st.just("") | CALLS | st.sampled_from(TAGS)
)
_JUNK = st.sampled_from(
    [
        *('{"name":', '"search"', ', "arguments": ', "{", "}", "[", "]", '"', "\\", "'", "\n", " "),
        *("9" * 5000, "[" * 2000, '{"a":' * 2000, "NaN", "-Infinity", "1e999", "12", "true", "nul"),
        *("\ud800", "\\ud800", "\\u12", "```", "\x00", "<", "</", "<tool_call", "done>"),
    ]
)
PIECES = st.one_of(CALLS, CALLS, _OLDER, _WRONG, _THOUGHTS, TEXT, st.sampled_from(TAGS), _JUNK)


@st.composite
def turns(draw: st.DrawFn) -> str:
    """A turn: pieces in a row, perhaps with a part cut out, doubled, changed or cut off."""
    text = "".join(draw(st.lists(PIECES, max_size=6)))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 40)))
        damage = draw(st.sampled_from(["cut out", "double", "insert", "cut off", "swap"]))
        if damage == "cut out":
            text = text[:start] + text[end:]
        elif damage == "double":
            text = text[:end] + text[start:]
        elif damage == "insert":
            text = text[:start] + draw(_JUNK | st.sampled_from(TAGS)) + text[start:]
        elif damage == "cut off":
            text = text[:start]
        else:
            text = text[:start] + text[start:end][::-1] + text[end:]
    return text
