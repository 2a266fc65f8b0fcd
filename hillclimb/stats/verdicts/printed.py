"""Tables of printed pass rates: the numbers of tasks and passes that they may stand for.

A row such as `github | 46.7% | 70.0%` names neither its tasks nor their number. `46.7%` stands for
every share that rounds to it, halves either way; `14/30` for itself. The printed rate over all
environments narrows what the rows may stand for. Fractions throughout: no rounding of our own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

MAX_SUMS = 1_000_000
"""Sums of the rows' counts that are made at most: a few seconds."""
_CELL = re.compile(
    r"(?P<share>[0-9]{1,3}(\.(?P<decimals>[0-9]{1,4}))?)%|(?P<passed>[0-9]{1,6})/(?P<of>[0-9]{1,6})"
)
CELL_FORM = r"[0-9]{1,3}(\.[0-9]{1,4})?%|[0-9]{1,6}/[0-9]{1,6}"
"""The same for the API's document, which names no groups."""


class PrintedTableError(ValueError):
    """A printed table stands for no numbers of passes, or for too many."""


@dataclass(frozen=True, slots=True, order=True)
class PassCounts:
    """Tasks of one rollout each, and how many passed before and after."""

    num_tasks: int
    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedRate:
    """A printed pass rate: the shares in [low, high], or exactly `passed` of `of` tasks."""

    text: str
    low: Fraction
    high: Fraction
    of: int | None = None

    @classmethod
    def parse(cls, text: str) -> PrintedRate:
        """Read `46.7%` or `14/30`.

        Raises:
            PrintedTableError: it is neither, or more passes than tasks.
        """
        match = _CELL.fullmatch(text)
        if match is None:
            raise PrintedTableError(
                f"{text!a} is neither a share like 46.7% nor a count like 14/30"
            )
        if match["share"] is None:
            passed, of = int(match["passed"]), int(match["of"])
            if not 0 <= passed <= of or of == 0:
                raise PrintedTableError(f"{text} are not passes of tasks")
            return cls(text=text, low=Fraction(passed, of), high=Fraction(passed, of), of=of)
        share = Fraction(match["share"]) / 100
        half = Fraction(1, 200 * 10 ** len(match["decimals"] or ""))
        return cls(text=text, low=share - half, high=share + half)

    def passes(self, num_tasks: int) -> range:
        """Return the numbers of passes among so many tasks that are printed like this."""
        if self.of not in (None, num_tasks):
            return range(0)
        least = max(0, math.ceil(self.low * num_tasks))
        return range(least, min(num_tasks, math.floor(self.high * num_tasks)) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedRow:
    """Two printed pass rates of the same tasks."""

    name: str
    before: PrintedRate
    after: PrintedRate
    num_tasks: int | None = None
    """Where it is known."""

    def counts(self, sizes: Sequence[int]) -> list[PassCounts]:
        """Return all counts that the row may stand for, with so many tasks where none is known.

        Raises:
            PrintedTableError: there are none.
        """
        known = self.num_tasks or self.before.of or self.after.of
        counts = [
            PassCounts(size, before, after)
            for size in ([known] if known else sizes)
            for before in self.before.passes(size)
            for after in self.after.passes(size)
        ]
        if not counts:
            tasks = f"{known} tasks" if known else f"no number of tasks up to {max(sizes)}"
            verb = "do not give" if known else "gives"
            raise PrintedTableError(
                f"{self.name}: {tasks} {verb} both {self.before.text} and {self.after.text}"
            )
        return counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Counts over all environments, with the fewest and the most tasks lost among them."""

    counts: PassCounts
    fewest_lost: int
    most_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PossibleCounts:
    """All counts that a table may stand for."""

    rows: Mapping[str, tuple[PassCounts, ...]]
    totals: tuple[Total, ...]
    """Over all rows; none where the printed overall rate is not theirs, or does not narrow them."""


def lost_range(counts: PassCounts) -> tuple[int, int]:
    """Return the fewest and the most tasks that passed before and failed after."""
    return (
        max(0, counts.before - counts.after),
        min(counts.before, counts.num_tasks - counts.after),
    )


def possible_counts(
    rows: Sequence[PrintedRow], overall: PrintedRow | None, *, max_tasks: int
) -> PossibleCounts:
    """Return the counts of every row, narrowed by the overall rate where that is theirs.

    Args:
        rows: one per environment, with different names.
        overall: the rates over all tasks of the rows; None where the table has none.
        max_tasks: most tasks of a row whose number is not known.

    Raises:
        PrintedTableError: a row stands for no counts, or the rows for too many sums.
    """
    of_rows = {row.name: row.counts(range(1, max_tasks + 1)) for row in rows}
    if overall is None and any(len(counts) > 1 for counts in of_rows.values()):
        return PossibleCounts(rows=_frozen(of_rows), totals=())
    # Rows of few counts first: the sums stay few for longest.
    names = sorted(of_rows, key=lambda name: len(of_rows[name]))
    sums = _Sums([of_rows[name] for name in names])
    reached = [total for total in sums.totals() if _is_printed(total.counts, overall)]
    if not reached:
        return PossibleCounts(rows=_frozen(of_rows), totals=())
    used = sums.used_by({total.counts for total in reached})
    narrowed = dict(zip(names, used, strict=True))
    return PossibleCounts(
        rows=_frozen({row.name: narrowed[row.name] for row in rows}),
        totals=tuple(sorted(reached, key=lambda total: total.counts)),
    )


class _Sums:
    """The sums of one count per row, row by row, with the range of the tasks lost."""

    def __init__(self, rows: Sequence[Sequence[PassCounts]]) -> None:
        self._rows = rows
        self._num_sums = 0
        self._steps: list[dict[PassCounts, tuple[int, int]]] = [{PassCounts(0, 0, 0): (0, 0)}]
        for counts in rows:
            self._steps.append(self._next(counts))

    def totals(self) -> Iterator[Total]:
        """Yield the sums over all rows."""
        for counts, (fewest, most) in self._steps[-1].items():
            yield Total(counts=counts, fewest_lost=fewest, most_lost=most)

    def used_by(self, reached: set[PassCounts]) -> list[list[PassCounts]]:
        """Return, per row, the counts that are part of a sum among `reached`."""
        used: list[list[PassCounts]] = []
        for counts, before in zip(reversed(self._rows), reversed(self._steps[:-1]), strict=True):
            ways: dict[PassCounts, set[PassCounts]] = {}
            for each in counts:
                rest = {_minus(after, each) for after in reached}
                ways[each] = rest & before.keys()
            used.append([each for each in counts if ways[each]])
            reached = set().union(*ways.values())
        return used[::-1]

    def _next(self, counts: Sequence[PassCounts]) -> dict[PassCounts, tuple[int, int]]:
        sums: dict[PassCounts, tuple[int, int]] = {}
        self._num_sums += len(counts) * len(self._steps[-1])
        if self._num_sums > MAX_SUMS:
            raise PrintedTableError(
                "the table stands for too many numbers of tasks: name those of some rows"
            )
        for each in counts:
            fewest, most = lost_range(each)
            for total, (fewest_lost, most_lost) in self._steps[-1].items():
                key = _plus(total, each)
                low, high = sums.get(key, (math.inf, -math.inf))
                sums[key] = (
                    int(min(low, fewest_lost + fewest)),
                    int(max(high, most_lost + most)),
                )
        return sums


def _plus(a: PassCounts, b: PassCounts) -> PassCounts:
    return PassCounts(a.num_tasks + b.num_tasks, a.before + b.before, a.after + b.after)


def _minus(a: PassCounts, b: PassCounts) -> PassCounts:
    return PassCounts(a.num_tasks - b.num_tasks, a.before - b.before, a.after - b.after)


def _is_printed(counts: PassCounts, overall: PrintedRow | None) -> bool:
    if overall is None:
        return True
    return (
        overall.num_tasks in (None, counts.num_tasks)
        and counts.before in overall.before.passes(counts.num_tasks)
        and counts.after in overall.after.passes(counts.num_tasks)
    )


def _frozen(rows: Mapping[str, Sequence[PassCounts]]) -> dict[str, tuple[PassCounts, ...]]:
    return {name: tuple(counts) for name, counts in rows.items()}
