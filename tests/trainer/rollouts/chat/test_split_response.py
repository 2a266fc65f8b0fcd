"""The core's view of a response agrees with the parser that the rollout obeyed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.stats.trajectories.response import split_response
from trainer.rollouts.chat.parsing import parse_turn

CALL = '<tool_call>{"name": "add", "arguments": {"n": 1}}</tool_call>'
PARTS = ("<think>", "</think>", "<done>", CALL, "some words ", "\n")
RESPONSES = st.lists(st.sampled_from(PARTS), max_size=8).map("".join)


@given(RESPONSES)
def test_text_calls_and_done_agree(response: str) -> None:
    parts, parsed = split_response(response), parse_turn(response)
    assert parts.text == parsed.answer
    assert parts.says_done == parsed.done
    if not parsed.done:
        assert parts.has_call == bool(parsed.calls)
