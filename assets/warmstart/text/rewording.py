"""Small changes to the wording of a request that leave its meaning alone.

A template has two or three wordings; learned by heart, they make every new wording a foreign
language. Clauses change places, articles fall out, and unknown words come in where they cannot be
taken for a name: between two words of the templates.
"""

from __future__ import annotations

import random
from collections.abc import Collection

from assets.warmstart.text.words import invented_word

_ARTICLES = ("the", "a", "an")
_SHUFFLED_SHARE, _DROPPED_SHARE, _INSERTED_SHARE, _OPENED_SHARE = 0.3, 0.15, 0.12, 0.25


def reworded(request: str, template_words: Collection[str], draw: random.Random) -> str:
    """`request` in other words; names, numbers and quoted phrases stay whole and in place."""
    if draw.random() < _SHUFFLED_SHARE:
        request = _with_shuffled_clauses(request, draw)
    words = request.split(" ")
    plain = [word.strip(".,:").casefold() for word in words]
    kept: list[str] = []
    if draw.random() < _OPENED_SHARE:
        kept += [invented_word(draw).capitalize() for _ in range(draw.randint(1, 2))]
    in_quotes = False
    for at, word in enumerate(words):
        in_quotes ^= word.count('"') % 2 == 1
        if plain[at] in _ARTICLES and not in_quotes and draw.random() < _DROPPED_SHARE:
            continue
        kept.append(word)
        between = [word, *words[at + 1 : at + 2]]
        is_safe = len(between) == 2 and not in_quotes and '"' not in "".join(between)
        if is_safe and all(each in template_words for each in plain[at : at + 2]):
            kept += [invented_word(draw)] * (draw.random() < _INSERTED_SHARE)
    return " ".join(kept)


def _with_shuffled_clauses(request: str, draw: random.Random) -> str:
    clauses = request.rstrip(".").split(", ")
    if len(clauses) == 1 or any(clause.count('"') % 2 for clause in clauses):
        return request
    head, colon, first = clauses[0].rpartition(": ")
    clauses[0] = first
    return f"{head}{colon}{', '.join(draw.sample(clauses, len(clauses)))}."
