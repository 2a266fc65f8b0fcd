"""Output of commands: tables for people, JSON for scripts, errors on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from hillclimb.client.errors import ApiProblem
from hillclimb.protocol.payloads.base import Payload

out = Console(highlight=False)
err = Console(stderr=True, highlight=False)

MAX_TABLE_WIDTH = 400

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


def print_table(grid: Table, *, stderr: bool = False) -> None:
    """Print a table as wide as necessary, so that no id is truncated."""
    unbounded = out.options.update(max_width=MAX_TABLE_WIDTH)
    needed = Measurement.get(out, unbounded, grid).maximum
    Console(highlight=False, stderr=stderr, width=max(out.width, needed)).print(grid)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """Return a plain table; columns whose name ends in `>` are aligned right."""
    grid = Table(box=None, pad_edge=False, header_style="bold dim")
    for column in columns:
        right = column.endswith(">")
        grid.add_column(column.removesuffix(">"), justify="right" if right else "left")
    for row in rows:
        grid.add_row(*("" if cell is None else str(cell) for cell in row))
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
