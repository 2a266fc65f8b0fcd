"""Reads a Markdown table of pass rates, as an experiment log has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from hillclimb.client.errors import TableTextError

OVERALL = ("overall", "all", "total")
NUM_TASKS = ("n", "tasks")
_RATE = re.compile(r"[0-9]+(\.[0-9]+)?%|[0-9]+/[0-9]+")
_RULER = re.compile(r":?-+:?")
_DECORATION = "*_`~ "
"""`~5%` is read as 5%: printed without decimals."""


def read_printed_table(text: str) -> dict[str, JsonValue]:
    """Return the rows, and the row over all environments, of the first table of pass rates.

    Its first column names the environment; the next two are the rates before and after; a column
    `n` or `tasks` has the number of tasks. Further columns are left out.

    Raises:
        TableTextError: no table has pass rates in its second and third columns.
    """
    for header, *rows in _blocks(text):
        places = [at for at, name in enumerate(header) if name.casefold() in NUM_TASKS][:1]
        if rows and all(_has_rates(_without(row, places)) for row in rows):
            return _body([(_without(row, places), _num_tasks(row, places)) for row in rows])
    raise TableTextError(
        "no table has pass rates such as 46.7% or 14/30 in its second and third columns"
    )


def _blocks(text: str) -> Iterator[list[list[str]]]:
    """Yield each table as rows of cells; the line below the header is no row."""
    block: list[list[str]] = []
    for line in [*text.splitlines(), ""]:
        if not line.strip().startswith("|"):
            if block:
                yield block
            block = []
            continue
        cells = [cell.strip(_DECORATION) for cell in line.strip().strip("|").split("|")]
        if not all(_RULER.fullmatch(cell) for cell in cells):
            block.append(cells)


def _without(row: Sequence[str], places: Sequence[int]) -> list[str]:
    return [cell for at, cell in enumerate(row) if at not in places]


def _has_rates(row: Sequence[str]) -> bool:
    return len(row) >= 3 and all(_RATE.fullmatch(cell.replace(" ", "")) for cell in row[1:3])


def _num_tasks(row: Sequence[str], places: Sequence[int]) -> int | None:
    cells = [row[at] for at in places if at < len(row)]
    return int(cells[0]) if cells and cells[0].isdecimal() else None


def _body(rows: Sequence[tuple[Sequence[str], int | None]]) -> dict[str, JsonValue]:
    body: dict[str, JsonValue] = {}
    environments: list[JsonValue] = []
    for (name, before, after, *_), num_tasks in rows:
        cells: Mapping[str, JsonValue] = {
            "before": before.replace(" ", ""),
            "after": after.replace(" ", ""),
            "num_tasks": num_tasks,
        }
        if name.casefold() in OVERALL:
            body["overall"] = dict(cells)
        else:
            environments.append({"env_key": name, **cells})
    return {"rows": environments, **body}
