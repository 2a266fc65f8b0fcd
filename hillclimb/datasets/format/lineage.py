"""What earlier versions of a dataset used each task for.

A task that was ever evaluated on never becomes a training task: a model of a later version would
have seen the answer sheet of an earlier one. Nor does a training task become an eval task, unless
the policy allows it: a model of an earlier version has practised it. Tasks are recognised by their
key, and by what they ask (their fingerprint) where a file gave them a new key.

A version may have two lines of ancestors: the versions of its name, and a parent of another name. A
task that one line trained on and the other evaluated on is torn between them: no policy allowed it.
It is neither from then on, until one does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SplitName = Literal["train", "eval", "excluded"]
_TORN_KEY, _TORN_PRINT = "torn key", "torn fingerprint"
"""Reasons of the rows that `Lineage.marks` writes."""


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
    torn_keys: frozenset[str] = frozenset()
    torn_prints: frozenset[str] = frozenset()

    @staticmethod
    def of(versions: Iterable[Iterable[SplitRow]]) -> Lineage:
        """Return what the split tables of one line of versions amount to, in any order."""
        kept: dict[str, tuple[set[str], set[str]]] = {
            "eval": (set(), set()),
            "train": (set(), set()),
            "excluded": (set(), set()),
        }
        torn_keys, torn_prints = set(), set()
        for table in versions:
            for row in table:
                keys, prints = kept[row.split]
                keys.add(row.key)
                prints.add(row.fingerprint)
                if row.reason == _TORN_KEY:
                    torn_keys.add(row.key)
                elif row.reason == _TORN_PRINT:
                    torn_prints.add(row.fingerprint)
        return Lineage(
            eval_keys=frozenset(kept["eval"][0]),
            eval_prints=frozenset(kept["eval"][1]),
            train_keys=frozenset(kept["train"][0]),
            train_prints=frozenset(kept["train"][1]),
            torn_keys=frozenset(torn_keys),
            torn_prints=frozenset(torn_prints),
        )

    @staticmethod
    def joined(lines: Iterable[Lineage]) -> Lineage:
        """Return what several lines of ancestors amount to, in any order."""
        each = tuple(lines)
        return Lineage(
            eval_keys=_union(line.eval_keys for line in each),
            eval_prints=_union(line.eval_prints for line in each),
            train_keys=_union(line.train_keys for line in each),
            train_prints=_union(line.train_prints for line in each),
            torn_keys=_torn([(line.train_keys, line.eval_keys, line.torn_keys) for line in each]),
            torn_prints=_torn(
                [(line.train_prints, line.eval_prints, line.torn_prints) for line in each]
            ),
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

    def marks(self, split: Iterable[SplitRow]) -> Iterator[SplitRow]:
        """Yield rows that say what is torn after a version with this split, for `table` to end on.

        What it evaluates on, its policy allowed.
        """
        allowed = [row for row in split if row.split == "eval"]
        for key in sorted(self.torn_keys.difference(row.key for row in allowed)):
            yield SplitRow(key=key, split="excluded", reason=_TORN_KEY, fingerprint="")
        for mark in sorted(self.torn_prints.difference(row.fingerprint for row in allowed)):
            yield SplitRow(key="", split="excluded", reason=_TORN_PRINT, fingerprint=mark)

    def past(self, prints: Mapping[str, str], *, trained_may_become_eval: bool = False) -> Past:
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
        torn = {
            key
            for key in evaluated - copies
            if key in self.torn_keys or prints[key] in self.torn_prints
        }
        if trained_may_become_eval:
            torn = set()
        return Past(
            evaluated=frozenset(evaluated - copies - torn),
            trained=frozenset(trained - evaluated),
            copies=frozenset(copies),
            torn=frozenset(torn),
        )


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _torn(
    lines: Sequence[tuple[frozenset[str], frozenset[str], frozenset[str]]],
) -> frozenset[str]:
    """Return what is torn, from what each line trained on, evaluated on and was torn about.

    What one line did both with, without being torn about it, a policy of that line allowed.
    """
    both = _union(line[0] for line in lines) & _union(line[1] for line in lines)
    allowed = _union((trained & evaluated) - torn for trained, evaluated, torn in lines)
    return (both | _union(line[2] for line in lines)) - allowed


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
    torn: frozenset[str] = frozenset()
    """Trained on by one line of ancestors and evaluated on by another: neither any more."""
