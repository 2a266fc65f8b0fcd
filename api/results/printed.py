"""Verdicts that a printed table of pass rates allows: nothing of a run is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from api.results.errors import TableRejected
from hillclimb.stats.verdicts.pairings import PossibleTable, judge_printed
from hillclimb.stats.verdicts.printed import PrintedRate, PrintedRow, PrintedTableError


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedRates:
    """Two cells of a row as they were printed, and its number of tasks where it is known."""

    name: str
    before: str
    after: str
    num_tasks: int | None


def judge_table(
    rows: Sequence[PrintedRates], overall: PrintedRates | None, *, max_tasks: int, rule: str
) -> PossibleTable:
    """Return every verdict that the table allows, as `judge_printed` does.

    Raises:
        TableRejected: a cell is no rate, a row stands for no counts, or the rows for too many.
    """
    try:
        return judge_printed(
            [_row(row) for row in rows],
            None if overall is None else _row(overall),
            max_tasks=max_tasks,
            rule=rule,
        )
    except PrintedTableError as error:
        raise TableRejected(f"{error}.") from error


def _row(rates: PrintedRates) -> PrintedRow:
    return PrintedRow(
        name=rates.name,
        before=PrintedRate.parse(rates.before),
        after=PrintedRate.parse(rates.after),
        num_tasks=rates.num_tasks,
    )
