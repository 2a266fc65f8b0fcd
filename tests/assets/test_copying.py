"""Documents that can only be continued by copying."""

from __future__ import annotations

import random
from pathlib import Path

from assets.warmstart.text.copying import CopyDocuments
from assets.warmstart.text.words import invented_word
from hillclimb.environment.base import ToolCall
from hillclimb.minifleet.framework.pools import POOLS
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.parsing import parse_turn

MODEL = Path(__file__).parents[2] / "assets" / "tiny-qwen3-a"


def test_every_value_of_a_call_stands_in_the_request() -> None:
    chat = Chat.from_directory(MODEL)
    num_calls = 0
    for document in CopyDocuments(chat, seed=0).take(60):
        start = document.loss_mask.index(True)
        request = chat.decode(document.token_ids[:start])
        turn = parse_turn(chat.decode(document.token_ids[start:]))
        for call in turn.calls:
            assert isinstance(call, ToolCall)
            assert all(str(value) in request for value in call.arguments.values())
            num_calls += 1
        assert turn.calls or turn.answer.split(" ")[0] in request
        assert all(document.loss_mask[start:])
    assert num_calls > 20


def test_documents_are_seeded() -> None:
    chat = Chat.from_directory(MODEL)
    assert CopyDocuments(chat, seed=1).take(5) == CopyDocuments(chat, seed=1).take(5)
    assert CopyDocuments(chat, seed=1).take(5) != CopyDocuments(chat, seed=2).take(5)


def test_invented_words_are_many_and_mostly_new() -> None:
    draw = random.Random(0)
    words = [invented_word(draw) for _ in range(500)]
    assert len(set(words)) > 400
    assert all(2 <= len(word) <= 11 and word.islower() for word in words)
    assert len(set(words) & {city.lower() for city in POOLS["eval"].cities}) < 5
