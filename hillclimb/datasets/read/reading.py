"""Reads the rows of a file or of a list, and records problems and ignored fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from hillclimb.datasets.format.rows import FileRow, RowProblem, printable
from hillclimb.datasets.read.raw import KNOWN, read_row
from hillclimb.datasets.read.scanner import Parsed, scan

MAX_PROBLEMS = 100
"""Problems that are stored as sentences; further ones are only counted."""
_MAX_IGNORED = 1_000
"""Distinct names of fields that are counted."""


class Reading:
    """Reader of one file, with its problems and counts, which are complete after the last row.

    Example:
        reading = Reading()
        prepared = prepare(reading.rows(chunks), options)
        if reading.num_problems: refuse with reading.problems

    Args:
        drops_empty_prompts: rows with an empty prompt are no problem, but PromptlessRows.
    """

    def __init__(self, *, drops_empty_prompts: bool = False) -> None:
        self._drops_empty_prompts = drops_empty_prompts
        self.problems: list[RowProblem] = []
        """The first problems, in the order of the file."""
        self.num_problems = 0
        self.num_rows = 0
        """Rows without a problem."""
        self.ignored_fields: Counter[str] = Counter()
        """Number of rows with each unknown field, by its printable name."""

    def rows(self, chunks: Iterable[bytes]) -> Iterator[FileRow]:
        """Yield the rows of a UTF-8 file that arrives in pieces (see `scanner` for its forms)."""
        for item in scan(chunks):
            if isinstance(item, Parsed):
                yield from self._row(item.value, item.number)
            else:
                self._note(item)

    def rows_of(self, values: Iterable[object]) -> Iterator[FileRow]:
        """Yield the rows of objects that were parsed elsewhere."""
        for number, value in enumerate(values, start=1):
            yield from self._row(value, number)

    def _row(self, value: object, number: int) -> Iterator[FileRow]:
        row = read_row(value, number, drops_empty_prompts=self._drops_empty_prompts)
        if isinstance(row, RowProblem):
            self._note(row)
            return
        self.num_rows += 1
        if isinstance(value, dict) and not value.keys() <= KNOWN:
            self._ignore(value.keys() - KNOWN)
        yield row

    def _ignore(self, names: Iterable[object]) -> None:
        for name in {printable(str(name)) for name in names}:
            if len(self.ignored_fields) < _MAX_IGNORED or name in self.ignored_fields:
                self.ignored_fields[name] += 1

    def _note(self, problem: RowProblem) -> None:
        self.num_problems += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
