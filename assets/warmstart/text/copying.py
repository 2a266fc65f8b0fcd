"""Stage one: documents that can only be continued by copying from earlier text.

Without this stage a model of this size learns flawless call grammar and no success at all: it
cannot carry an argument from the request into the call. Kinds of documents: a phrase said three
times, a call that repeats named values, and a call that repeats the fields of one row of a table,
the first one or the one that holds a given value.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import cast

import torch
from transformers import Qwen3ForCausalLM

from assets.warmstart.text.documents import Document, SpokenTurn, dialogue
from assets.warmstart.text.habits import APPS_TAUGHT
from assets.warmstart.text.words import invented_value, invented_word
from hillclimb.minifleet.catalog import APPS
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import render_call, render_observation

Value = str | int
_TOKEN_WORDS_SHARE = 0.35
"""Share of values made of tokens: those that only occur in prompts would never be said."""


class CopyDocuments:
    """An endless seeded stream of copy documents over the argument names of the apps taught."""

    def __init__(self, chat: Chat, *, seed: int) -> None:
        self._chat = chat
        self._keys = _argument_names()
        self._pieces = word_pieces(chat)
        self._draw = random.Random(seed)

    def take(self, count: int) -> list[Document]:
        """The next `count` documents."""
        kinds = (self._echo, self._echo, self._named_values, self._prose, self._table_row)
        return [self._draw.choice(kinds)() for _ in range(count)]

    def _echo(self) -> Document:
        """One phrase three times: most tokens count, which starts copying off."""
        phrase = " ".join(str(self._value()) for _ in range(self._draw.randint(1, 3)))
        prompt = (*self._chat.encode_message("user", phrase), *self._chat.open_turn_ids)
        return dialogue(self._chat, prompt, [SpokenTurn(text=f"{phrase} {phrase} {phrase}")])

    def _named_values(self) -> Document:
        fields = self._row(self._draw.randint(3, 6))
        request = "\n".join(f"{key}: {value}" for key, value in fields.items())
        return self._document(request, self._shuffled(fields))

    def _prose(self) -> Document:
        """Values stand between invented words; the order in the text is the order in the call."""
        fields = self._row(self._draw.randint(2, 4))
        parts: list[str] = []
        for key, value in fields.items():
            filler = [invented_word(self._draw) for _ in range(self._draw.randint(0, 2))]
            parts += [*filler, key, str(value)]
        return self._document(" ".join(parts) + ".", fields)

    def _table_row(self) -> Document:
        keys = self._draw.sample(self._keys, self._draw.randint(2, 4))
        rows = [{key: self._value() for key in keys} for _ in range(4)]
        rows = rows[: self._draw.randint(1, 4)]
        table = "\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        if self._draw.random() < 0.5:
            return self._document(render_observation(table, is_error=False), rows[0])
        chosen = self._draw.choice(rows)
        known, *others = self._draw.sample(keys, len(keys))
        table += f"\n{known}: {chosen[known]}"
        return self._document(table, {key: chosen[key] for key in (known, *others)})

    def _value(self) -> Value:
        """An invented value, or words of letters that are tokens: every token gets its turn."""
        if self._draw.random() >= _TOKEN_WORDS_SHARE:
            return invented_value(self._draw)
        sizes = self._draw.choices((1, 2), weights=(2, 1), k=self._draw.randint(1, 2))
        return " ".join("".join(self._draw.choices(self._pieces, k=size)) for size in sizes)

    def _row(self, count: int) -> dict[str, Value]:
        return {key: self._value() for key in self._draw.sample(self._keys, count)}

    def _shuffled(self, fields: dict[str, Value]) -> dict[str, Value]:
        return {key: fields[key] for key in self._draw.sample(list(fields), len(fields))}

    def _document(self, request: str, arguments: dict[str, Value]) -> Document:
        prompt = (*self._chat.encode_message("user", request), *self._chat.open_turn_ids)
        call = render_call("copy", dict(arguments))
        return dialogue(self._chat, prompt, [SpokenTurn(text=call)])


def word_pieces(chat: Chat) -> list[str]:
    """Every token that is nothing but letters."""
    return [text for text in chat.vocabulary() if text.isalpha()]


def _argument_names() -> list[str]:
    names = {
        name
        for key in APPS_TAUGHT
        for tool in APPS[key].tools
        for name in cast("dict[str, object]", tool.spec.parameters["properties"])
    }
    return sorted(names)


@torch.no_grad()
def copy_accuracy(model: Qwen3ForCausalLM, documents: Sequence[Document]) -> float:
    """Share of documents, in [0, 1], whose every counted token is the model's first choice."""
    right = 0
    for document in documents:
        ids = torch.tensor([document.token_ids])
        wanted = torch.tensor(document.loss_mask)[1:]
        guesses = model(input_ids=ids[:, :-1]).logits[0].argmax(-1)
        right += bool((guesses == ids[0, 1:])[wanted].all())
    return right / len(documents)
