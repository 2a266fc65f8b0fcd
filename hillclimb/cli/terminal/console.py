"""Output of commands: tables for people, JSON for scripts, errors on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import click
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Column, Table

from hillclimb.cli.terminal.foreign_text import (
    PlainConsole,
    cell_markup,
    visible,
    visible_lines,
)
from hillclimb.client.connection import KEY
from hillclimb.client.errors import ApiProblem
from hillclimb.protocol.payloads.base import Payload

out = PlainConsole(highlight=False, emoji=False)
err = PlainConsole(stderr=True, highlight=False, emoji=False)
"""Without emoji: `s-1:train:0`, and other text of others, is printed as it is."""

NOT_AUTHENTICATED = 401
MAX_TABLE_WIDTH = 400
LEAST_CHARS = 8
"""Width down to which a column is cut or folded."""

STATUS_STYLE = {
    "succeeded": "green",
    "failed": "red",
    "cancelled": "yellow",
    "running": "cyan",
    "paused": "magenta",
    "recovering": "yellow",
}


def print_json(value: Any) -> None:
    """Print one JSON document, or a payload as one, on standard output."""
    if isinstance(value, Payload):
        value = json_of(value)
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def json_of(payload: Payload) -> dict[str, Any]:
    """Return the JSON of a payload with the keys that the service sent."""
    return payload.model_dump(mode="json", exclude_unset=True)


def print_text(text: str, **style: Any) -> None:
    """Print text of the service or a rollout on one line; brackets are not markup."""
    out.print(text, markup=False, soft_wrap=True, **style)


def print_page(text: str) -> None:
    """Print text of several lines as it is, without what would control the terminal."""
    click.echo(visible(text))


def print_log(text: str) -> None:
    """Print a part of a log, which may end within a line; colours stay."""
    click.echo(visible_lines(text), nl=False)


def print_error(error: Exception, *, as_json: bool) -> None:
    """Print an error as sentences, or as JSON: the service's problem document."""
    if as_json:
        body = error.body if isinstance(error, ApiProblem) else {"title": str(error)}
        sys.stderr.write(json.dumps(body, default=str) + "\n")
        sys.stderr.flush()
        return
    sentences = error.sentences() if isinstance(error, ApiProblem) else [str(error)]
    for sentence in sentences:
        err.print("[red]error:[/red]", escape(sentence), soft_wrap=True)
    if isinstance(error, ApiProblem) and error.status == NOT_AUTHENTICATED:
        err.print(_other_key(), soft_wrap=True)


def _other_key() -> str:
    """Return where the refused key came from, and how to use another one."""
    if os.environ.get(KEY, "").strip():
        return f"it is the key in {KEY}: set it to another one, or unset it"
    return "sign in with another key: hillclimb login"


def print_table(grid: Table, *, stderr: bool = False, empty: str = "") -> None:
    """Print a table as wide as necessary, so that no id is truncated; without a row, `empty`.

    If the terminal is narrower, columns stand closer together, and then texts of columns that may
    be cut (`~`) or folded (`|`) are; in a pipe none is.
    """
    if empty and not grid.row_count:
        print_text(empty)
        return
    console = err if stderr else out
    if _needed(grid) > console.width:
        grid.padding = (0, 1, 0, 0)
    if console.is_terminal:
        _narrow(grid, _needed(grid) - console.width)
    width = max(console.width, _needed(grid))
    PlainConsole(highlight=False, emoji=False, stderr=stderr, width=width).print(grid)


def _narrow(grid: Table, excess: int) -> None:
    """Make the columns that may be cut or folded narrower, by `excess` characters in all."""
    for column in grid.columns:
        if column.overflow in ("ellipsis", "fold") and excess > 0:
            widest = _widest(column)
            column.width = max(min(widest, LEAST_CHARS), widest - excess)
            excess -= widest - column.width


def _needed(grid: Table) -> int:
    unbounded = out.options.update(max_width=MAX_TABLE_WIDTH)
    return Measurement.get(out, unbounded, grid).maximum


def _widest(column: Column) -> int:
    cells = [column.header, *column.cells]
    return max(Measurement.get(out, out.options.update(max_width=MAX_TABLE_WIDTH), cell).maximum
               for cell in cells)  # fmt: skip


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a plain table; the end of a column's name says how it is set.

    Of markup in cells only whole words in one of our colours are obeyed.

    `>` aligns it right. In a terminal that is too narrow, `~` cuts its texts with an ellipsis, and
    `|` folds them.
    """
    grid = Table(box=None, pad_edge=False, header_style="bold dim")
    for column in columns:
        mark = column[-1:]
        grid.add_column(
            column.rstrip(">~|"),
            justify="right" if mark == ">" else "left",
            no_wrap=mark != "|",
            overflow="ellipsis" if mark == "~" else "fold" if mark == "|" else "crop",
        )
    for row in rows:
        grid.add_row(*("" if cell is None else cell_markup(str(cell)) for cell in row))
    return grid


def styled_status(status: str) -> str:
    """Return the status in its colour."""
    style = STATUS_STYLE.get(status)
    return f"[{style}]{status}[/{style}]" if style else status


def timestamp(moment: datetime) -> str:
    """Return a time as the service writes it in JSON."""
    return moment.isoformat().replace("+00:00", "Z")


def minute(moment: datetime) -> str:
    """Return a time without seconds and time zone."""
    return f"{moment:%Y-%m-%dT%H:%M}"


def age(moment: datetime) -> str:
    """Return the time since a moment in its largest unit: `40s`, `12m`, `5h`, `3d`."""
    seconds = max(0, round((datetime.now(UTC) - moment).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def percent(rate: float | None) -> str:
    """Return a rate in [0, 1] as `53.2 %`, or a dash."""
    return "–" if rate is None else f"{100 * rate:.1f} %"


def duration(seconds: float | None) -> str:
    """Return seconds as `1:23` or `1:02:03`."""
    if seconds is None:
        return "–"
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{seconds_left:02d}"
    return f"{minutes}:{seconds_left:02d}"
