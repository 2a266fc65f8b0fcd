"""Lineage of a dataset: uses of each task in earlier versions.

An eval task of any earlier version never becomes a training task, because a model of a later
version would then be measured on tasks it was trained on. A training task does not become an eval
task either, unless the policy allows it. Tasks are recognised by their key, and by their
fingerprint (environment, prompt and variables) if a file gives them a new key.

A version may have two lines of ancestors: the versions of its name, and a parent of another name. A
task that one line trained on and the other evaluated on is conflicting ("torn" in stored rows): no
policy allowed it. It is excluded from then on, until a policy allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

SplitName = Literal["train", "eval", "excluded"]
_CONFLICTING_KEY, _CONFLICTING_PRINT = "torn key", "torn fingerprint"
"""Reasons of the rows that `Lineage.marks` writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitRow:
    """Split of one task of a version."""

    key: str
    split: SplitName
    reason: str | None = None
    """Reason of an exclusion; null for the others."""
    fingerprint: str
    """Hash of the task's content, independent of its key (`rows.fingerprint`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Tasks that *any* earlier version trained or evaluated on, removed ones included."""

    eval_keys: frozenset[str] = frozenset()
    eval_prints: frozenset[str] = frozenset()
    train_keys: frozenset[str] = frozenset()
    train_prints: frozenset[str] = frozenset()
    conflicting_keys: frozenset[str] = frozenset()
    conflicting_prints: frozenset[str] = frozenset()

    @staticmethod
    def of(versions: Iterable[Iterable[SplitRow]]) -> Lineage:
        """Return the lineage of one line of versions from their split tables, in any order."""
        uses: dict[str, tuple[set[str], set[str]]] = {
            "eval": (set(), set()),
            "train": (set(), set()),
            "excluded": (set(), set()),
        }
        conflicting_keys, conflicting_prints = set(), set()
        for table in versions:
            for row in table:
                keys, prints = uses[row.split]
                keys.add(row.key)
                prints.add(row.fingerprint)
                if row.reason == _CONFLICTING_KEY:
                    conflicting_keys.add(row.key)
                elif row.reason == _CONFLICTING_PRINT:
                    conflicting_prints.add(row.fingerprint)
        return Lineage(
            eval_keys=frozenset(uses["eval"][0]),
            eval_prints=frozenset(uses["eval"][1]),
            train_keys=frozenset(uses["train"][0]),
            train_prints=frozenset(uses["train"][1]),
            conflicting_keys=frozenset(conflicting_keys),
            conflicting_prints=frozenset(conflicting_prints),
        )

    @staticmethod
    def joined(lines: Iterable[Lineage]) -> Lineage:
        """Return the combined lineage of several lines of ancestors, in any order."""
        each = tuple(lines)
        return Lineage(
            eval_keys=_union(line.eval_keys for line in each),
            eval_prints=_union(line.eval_prints for line in each),
            train_keys=_union(line.train_keys for line in each),
            train_prints=_union(line.train_prints for line in each),
            conflicting_keys=_conflicting(
                [(line.train_keys, line.eval_keys, line.conflicting_keys) for line in each]
            ),
            conflicting_prints=_conflicting(
                [(line.train_prints, line.eval_prints, line.conflicting_prints) for line in each]
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
        """Yield rows for the conflicting tasks after a version with this split, to end `table`.

        Its own eval tasks are no longer conflicting: its policy allowed them.
        """
        allowed = [row for row in split if row.split == "eval"]
        for key in sorted(self.conflicting_keys.difference(row.key for row in allowed)):
            yield SplitRow(key=key, split="excluded", reason=_CONFLICTING_KEY, fingerprint="")
        for mark in sorted(self.conflicting_prints.difference(row.fingerprint for row in allowed)):
            yield SplitRow(key="", split="excluded", reason=_CONFLICTING_PRINT, fingerprint=mark)

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
        conflicting = {
            key
            for key in evaluated - copies
            if key in self.conflicting_keys or prints[key] in self.conflicting_prints
        }
        if trained_may_become_eval:
            conflicting = set()
        return Past(
            evaluated=frozenset(evaluated - copies - conflicting),
            trained=frozenset(trained - evaluated),
            copies=frozenset(copies),
            conflicting=frozenset(conflicting),
        )


def _union(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset[str]().union(*sets)


def _conflicting(
    lines: Sequence[tuple[frozenset[str], frozenset[str], frozenset[str]]],
) -> frozenset[str]:
    """Return the conflicting tasks, from each line's training, eval and conflicting tasks.

    A task that one line used for both without a conflict was allowed by a policy of that line.
    """
    both = _union(line[0] for line in lines) & _union(line[1] for line in lines)
    allowed = _union(
        (trained & evaluated) - conflicting for trained, evaluated, conflicting in lines
    )
    return (both | _union(line[2] for line in lines)) - allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Keys of a new version by their former use; the sets are disjoint."""

    evaluated: frozenset[str] = frozenset()
    """Formerly an eval task: eval or excluded from now on."""
    trained: frozenset[str] = frozenset()
    """Formerly a training task and never an eval task."""
    copies: frozenset[str] = frozenset()
    """Copy of an eval task of an earlier version, which is present under its own key or was trained
    on under this one: excluded from now on."""
    conflicting: frozenset[str] = frozenset()
    """Conflicting: a training task of one line of ancestors and an eval task of another; excluded.
    """
