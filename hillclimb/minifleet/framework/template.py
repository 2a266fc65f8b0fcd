"""A task template: one goal, a few wordings, and the draw that fills both with names."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import JsonValue

from hillclimb.minifleet.framework.changes import Change
from hillclimb.minifleet.framework.pools import POOLS, Pools
from hillclimb.minifleet.framework.world import Row

_T = TypeVar("_T")


class TaskDraw:
    """Everything random about one task, from its key alone (stable over processes and versions).

    `today` never falls on a day that ends in 9, so that tomorrow differs in one digit.
    """

    def __init__(self, key: str, split: str) -> None:
        self._random = random.Random(key)
        self.pools: Pools = POOLS[split]
        self.month = self._random.randint(1, 9)
        self.day = self._random.choice([day for day in range(1, 28) if day % 10 != 9])
        self.today = f"2026-{self.month:02d}-{self.day:02d}"
        self.tomorrow = f"2026-{self.month:02d}-{self.day + 1:02d}"
        self.fresh = self._random.randrange(90)

    def one(self, pool: Sequence[_T]) -> _T:
        """Return one of the pool."""
        return self._random.choice(pool)

    def some(self, pool: Sequence[_T], count: int) -> list[_T]:
        """Return `count` distinct members of the pool."""
        return self._random.sample(pool, count)

    def number(self, low: int, high: int) -> int:
        """Return an integer in [low, high]."""
        return self._random.randint(low, high)

    def numbers(self, count: int) -> list[int]:
        """Return distinct two-digit numbers."""
        return self._random.sample(range(10, 100), count)

    def ids(self, prefix: str, count: int) -> list[str]:
        """Return distinct ids such as `h47`."""
        return [f"{prefix}{number}" for number in self.numbers(count)]

    def soon(self) -> str:
        """Return an ISO date in this month, today or later and before any `later`."""
        return f"2026-{self.month:02d}-{self.number(self.day, 28):02d}"

    def earlier(self) -> str:
        """Return an ISO date in this month, today or before."""
        return f"2026-{self.month:02d}-{self.number(1, self.day):02d}"

    def later(self) -> str:
        """Return an ISO date in a later month than today's."""
        return f"2026-{self.number(self.month + 1, 12):02d}-{self.number(1, 28):02d}"

    def later_days(self, count: int) -> list[str]:
        """Return distinct ISO dates in later months than today's, in order."""
        days = sorted(self._random.sample(range(28 * (12 - self.month)), count))
        return [f"2026-{self.month + 1 + day // 28:02d}-{day % 28 + 1:02d}" for day in days]

    def digits(self, low: int, high: int) -> list[int]:
        """Return the integers of [low, high] in random order."""
        return self._random.sample(range(low, high + 1), high - low + 1)

    def phrase(self, first: Sequence[str], second: Sequence[str]) -> str:
        """Return two words of two pools."""
        return f"{self.one(first)} {self.one(second)}"

    def phrases(self, first: Sequence[str], second: Sequence[str], count: int) -> list[str]:
        """Return phrases that share no word."""
        pairs = zip(self.some(first, count), self.some(second, count), strict=True)
        return [" ".join(pair) for pair in pairs]

    def shuffled(self, rows: list[Row]) -> list[Row]:
        """Return the rows in random order."""
        return self._random.sample(rows, len(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledTemplate:
    """One filled-in template."""

    user: str
    words: Mapping[str, str | int]
    """Values of the wording's placeholders."""
    tables: Mapping[str, list[Row]]
    """The app's start state."""
    goal: Mapping[str, JsonValue]
    """The request as data, read by the scripted expert; `kind` names the expert's plan."""
    changes: Sequence[Change]
    """The exact difference of the final state from the start state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """One kind of request; `held_out` ones are in no train split."""

    name: str
    difficulty: int
    wordings: tuple[str, ...]
    build: Callable[[TaskDraw], FilledTemplate] = field(repr=False)
    held_out: bool = False
