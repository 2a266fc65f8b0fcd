"""Giving an episode new names without playing it again.

The few hundred names of the train split would be learned by heart. Renamed throughout the text of
an episode they are new in every document, and the only way to write them is to copy them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Sequence

from assets.warmstart.text.words import POOLS_TAUGHT, invented_word
from hillclimb.minifleet.framework.pools import POOLS

_OF_PIECES_SHARE = 0.4
_LETTERS = re.compile(r"[^\W\d_]+")


def words_of(text: str) -> set[str]:
    """Every run of letters in `text`, in lower case."""
    return {word.casefold() for word in _LETTERS.findall(text)}


def names_to_change(kept_texts: Iterable[str]) -> frozenset[str]:
    """The names of the train split, without words that also occur in prompts and tool schemas."""
    pools = POOLS["train"]
    names = {
        word for pool in POOLS_TAUGHT for entry in getattr(pools, pool) for word in words_of(entry)
    }
    return frozenset(names - set().union(*(words_of(text) for text in kept_texts)))


class Renaming:
    """One consistent renaming; calling it changes a text. Capitals are kept.

    Args:
        names: what to change, in lower case.
        draw: makes up the new names.
        pieces: when given, two of five new names are put together from these.
    """

    def __init__(
        self, names: Collection[str], draw: random.Random, pieces: Sequence[str] = ()
    ) -> None:
        self._names = names
        self._pieces = pieces
        self._draw = draw
        self._new: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        """`text` with each of the names replaced by the invented word that stands for it."""
        return _LETTERS.sub(self._replace, text)

    def _replace(self, match: re.Match[str]) -> str:
        word = match[0]
        key = word.casefold()
        if key not in self._names:
            return word
        if key not in self._new:
            taken = set(self._new.values())
            self._new[key] = next(w for w in iter(self._invent, None) if w not in taken)
        return self._new[key].capitalize() if word[0].isupper() else self._new[key]

    def _invent(self) -> str:
        if self._pieces and self._draw.random() < _OF_PIECES_SHARE:
            return "".join(self._draw.choices(self._pieces, k=self._draw.randint(1, 2)))
        return invented_word(self._draw)
