"""Invented words and values: an open vocabulary, so that copying is learned and not a word list."""

from __future__ import annotations

import random
import string
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields

from hillclimb.minifleet.framework.pools import POOLS, Pools

_ONSETS = """b bl br c ch cl d dr f fl fr g gr h j k kl l m n p pr qu r s sh sk sn st str t th tr v
    w y z"""
_VOWELS = "a e i o u a e i o ai ea ee io oa oo ou y"
_CODAS = "b ck d f g k l ll m n nd ng nt p r rd rt s sh ss st t th x er le on en in"
_MAX_LETTERS = 11
_NAMES = tuple(field.name for field in fields(Pools))
POOLS_TAUGHT = _NAMES[: _NAMES.index("animals") + 1]
"""The pools of the apps that the tiny models are taught: with later ones, a model that is made
again would see other words than the shipped one."""


def _successors() -> Mapping[str, Sequence[str]]:
    """Which letter follows which two in the names of the train split; `$` starts and ends."""
    table: dict[str, list[str]] = defaultdict(list)
    for pool in POOLS_TAUGHT:
        for name in getattr(POOLS["train"], pool):
            word = f"$${''.join(filter(str.isalpha, name.casefold()))}$"
            for at in range(len(word) - 2):
                table[word[at : at + 2]].append(word[at + 2])
    return table


_SUCCESSORS = _successors()


def invented_word(draw: random.Random) -> str:
    """A lower-case word of 2 to 11 letters: like the train split's names, or plain syllables."""
    if draw.random() < 0.4:
        count = draw.choices((1, 2), weights=(1, 2))[0]
        onsets, vowels = _ONSETS.split(), _VOWELS.split()
        body = "".join(draw.choice(onsets) + draw.choice(vowels) for _ in range(count))
        return body + draw.choice(["", *_CODAS.split()])
    word = "$$"
    while len(word) < _MAX_LETTERS + 2:
        letter = draw.choice(_SUCCESSORS[word[-2:]])
        if letter == "$":
            break
        word += letter
    return word[2:] if len(word) > 4 else invented_word(draw)


def invented_value(draw: random.Random) -> str | int:
    """A value as the apps hold them: a word, phrase, name, address, id, date or number."""
    kind = draw.randrange(10)
    word, other = invented_word(draw), invented_word(draw)
    letters = string.ascii_letters
    values: tuple[str | int, ...] = (
        word,
        word.capitalize(),
        f"{word} {other}",
        f"{word.capitalize()} {other.capitalize()}",
        f"{word}-{other}",
        f"{word}@{other}.{draw.choice(('com', 'io', 'net', 'org', 'dev', 'eu'))}",
        f"{draw.choice(string.ascii_lowercase)}{draw.randint(10, 99)}",
        f"2026-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}",
        draw.randint(1, 99),
        "".join(draw.choice(letters) for _ in range(draw.randint(2, 5))),
    )
    return values[kind]
