"""Tokens of thought in a sampled turn, against the parser's rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.thinking import count_thinking_tokens

MODEL = Path(__file__).parents[4] / "assets" / "tiny-qwen3-a"
CALL = '<tool_call>{"name": "search", "arguments": {"city": "Brno"}}</tool_call>'


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat.from_directory(MODEL)


@pytest.mark.parametrize(
    ("thought", "rest"),
    [
        ("<think>the cheapest one</think>", CALL),
        ("the prompt opened this thought</think>", CALL),
        ("<think>", ""),
        ("<think>never closed " + CALL, ""),
        ("<THINK>capitals</THINK>", "text"),
        ("", CALL),
        ("", "no tags, thinking aloud"),
        ("", '<tool_call>{"name": "post", "arguments": {"body": "<think>"}}</tool_call>'),
    ],
)
def test_the_thought_and_nothing_else_is_counted(chat: Chat, thought: str, rest: str) -> None:
    thought_ids, rest_ids = chat.encode_turn(thought)[:-1], chat.encode_turn(rest)
    ids = (*thought_ids, *rest_ids)
    if not rest:
        ids = thought_ids
    assert count_thinking_tokens(ids, chat) == len(thought_ids)


def test_two_thoughts_are_added_up(chat: Chat) -> None:
    parts = [chat.encode_turn(text)[:-1] for text in ("<think>a b</think>", CALL, "<think>c")]
    ids = tuple(index for part in parts for index in part)
    assert count_thinking_tokens(ids, chat) == len(parts[0]) + len(parts[2])


def test_an_end_tag_within_a_later_thought_closes_only_that_one(chat: Chat) -> None:
    parts = [
        chat.encode_turn(text)[:-1] for text in ("text ", "<think>a</think>", " more </think>")
    ]
    ids = tuple(index for part in parts for index in part)
    assert count_thinking_tokens(ids, chat) == len(parts[1])
