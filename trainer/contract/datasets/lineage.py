"""What earlier versions of a dataset used each task for.

A task that was ever evaluated on never becomes a training task: a model of a later version would
have seen the answer sheet of an earlier one. Nor does a training task become an eval task, unless
the policy allows it: a model of an earlier version has practised it. Tasks are recognised by their
key, and by what they ask (their fingerprint) where a file gave them a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

SplitName = Literal["train", "eval", "excluded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRow:
    """Where one task of a version belongs."""

    key: str
    split: SplitName
    reason: str | None = None
    """Why it is excluded; null for the others."""
    fingerprint: str
    """What the task asks, whatever its key (`rows.fingerprint`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """The tasks that *any* earlier version trained or evaluated on, removed ones included."""

    eval_keys: frozenset[str] = frozenset()
    eval_prints: frozenset[str] = frozenset()
    train_keys: frozenset[str] = frozenset()
    train_prints: frozenset[str] = frozenset()

    @staticmethod
    def of(versions: Iterable[Iterable[SplitRow]]) -> Lineage:
        """Return what the split tables of all earlier versions amount to, in any order."""
        kept: dict[str, tuple[set[str], set[str]]] = {
            "eval": (set(), set()),
            "train": (set(), set()),
            "excluded": (set(), set()),
        }
        for table in versions:
            for row in table:
                keys, prints = kept[row.split]
                keys.add(row.key)
                prints.add(row.fingerprint)
        return Lineage(
            eval_keys=frozenset(kept["eval"][0]),
            eval_prints=frozenset(kept["eval"][1]),
            train_keys=frozenset(kept["train"][0]),
            train_prints=frozenset(kept["train"][1]),
        )

    @staticmethod
    def table(versions: Iterable[Iterable[SplitRow]]) -> Iterator[SplitRow]:
        """Yield one row for each use of a task in these tables: `of` is the same for these rows."""
        uses = {
            (row.key, row.split, row.fingerprint)
            for table in versions
            for row in table
            if row.split != "excluded"
        }
        for key, split, fingerprint in sorted(uses):
            yield SplitRow(key=key, split=split, fingerprint=fingerprint)

    def past(self, prints: Mapping[str, str]) -> Past:
        """Return how the tasks of a new version (key -> fingerprint) were used before."""
        evaluated = {
            key for key, mark in prints.items() if key in self.eval_keys or mark in self.eval_prints
        }
        trained = {
            key
            for key, mark in prints.items()
            if key in self.train_keys or mark in self.train_prints
        }
        present = {prints[key] for key in evaluated if key in self.eval_keys}
        copies = {
            key
            for key in evaluated - self.eval_keys
            if key in self.train_keys or prints[key] in present
        }
        return Past(
            evaluated=frozenset(evaluated - copies),
            trained=frozenset(trained - evaluated),
            copies=frozenset(copies),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Keys of a new version by what was done with them before; no key is in two of the sets."""

    evaluated: frozenset[str] = frozenset()
    """Once an eval task: eval or excluded from now on."""
    trained: frozenset[str] = frozenset()
    """Once a training task and never an eval task."""
    copies: frozenset[str] = frozenset()
    """Asks the same as an eval task of an earlier version, which is present under its own key or
    was trained on under this one: neither eval nor train any more."""
