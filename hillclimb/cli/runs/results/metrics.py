"""`metrics`: search the series of a run, draw them, export them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.view import sparkline
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.foreign_text import csv_cell
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.results.metrics import MetricPoint, MetricSeries

CURVE_WIDTH = 16
STANDARD_OUTPUT = "-"
GLOB = set("*?[")
MAX_DRAWN = 2_000
"""Points of a series that the list reads."""


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--decoding", metavar="NAME", help="Only of `train`, or of this eval decoding.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=40, show_default=True,
              help="Series to print.")  # fmt: skip
@click.option("--max-points", type=click.IntRange(2, 10_000), metavar="N",
              help="Thin each series to N points.")  # fmt: skip
@click.option(
    "--csv",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Write every point of the series to FILE; - is standard output.",
)
@command
def metrics(  # noqa: PLR0913 (one per option)
    *,
    run_id: str,
    name: str | None,
    decoding: str | None,
    limit: int,
    max_points: int | None,
    target: Path | None,
    as_json: bool,
) -> None:
    """Show the metrics of RUN whose names contain NAME, or fit it: reward/*, eval/*/pass_at_1.

    Several patterns are separated by commas. docs/metrics.md explains each metric.
    """
    is_list = target is None and not as_json
    most = max_points or (MAX_DRAWN if is_list else None)
    with connect() as client:
        page = client.metrics(run_id, names=_patterns(name), max_points=most)
        if is_list and len(page.data) == 1 and _may_be_thinned(page.data[0].points, most):
            # Its lowest and highest value are printed.
            page = client.metrics(run_id, names=_patterns(name), max_points=max_points)
    series = [each for each in page.data if decoding in (None, each.decoding)]
    if as_json:
        print_json(page.model_copy(update={"data": series}))
    elif target is not None:
        _export(series, target)
    elif not series:
        every = f"no metric fits: hillclimb metrics {run_id} lists all of them"
        none = "no metrics yet: they come with the first evaluation or step"
        print_text(none if name is None and decoding is None else every)
    else:
        _print_series(series[:limit])
        if len(series) > limit:
            print_text(f"and {len(series) - limit} more series: --limit, or a NAME", style="dim")


def _may_be_thinned(points: Sequence[MetricPoint], max_points: int | None) -> bool:
    return max_points is not None and points[-1].step - points[0].step >= max_points


def _patterns(name: str | None) -> str:
    """Return the patterns of the API: a word without a wildcard may stand anywhere in a name."""
    if name is None:
        return "*"
    return ",".join(part if GLOB & set(part) else f"*{part}*" for part in name.split(","))


def _print_series(series: Sequence[MetricSeries]) -> None:
    rows = [
        (
            each.name,
            each.decoding,
            len(each.points),
            _number(each.points[0].value),
            _number(each.points[-1].value),
            curve(each.points),
        )
        for each in series
    ]
    print_table(table(("metric~", "of", "points>", "first>", "last>", "curve"), rows))
    if len(series) == 1:
        _print_extremes(series[0].points)


def _print_extremes(points: Sequence[MetricPoint]) -> None:
    for word, end in (
        ("lowest", min(points, key=lambda point: point.value)),
        ("highest", max(points, key=lambda point: point.value)),
    ):
        out.print(f"{word} {_number(end.value)} at step {end.step}", style="dim")


def curve(points: Sequence[MetricPoint], width: int = CURVE_WIDTH) -> str:
    """Return block characters between the lowest and the highest value, oldest first.

    More points than fit are averaged.
    """
    values = [point.value for point in points]
    if len(values) > width:
        ends = [len(values) * place // width for place in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(ends)]
    low, high = min(values), max(values)
    span = high - low
    return sparkline([(value - low) / span if span else 0.5 for value in values], width)


def _number(value: float) -> str:
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.4g}"


def _export(series: Sequence[MetricSeries], target: Path) -> None:
    if str(target) == STANDARD_OUTPUT:
        _write(series, sys.stdout)
        return
    with target.open("w", newline="") as file:
        _write(series, file)
    points = sum(len(each.points) for each in series)
    print_text(f"{points} points of {len(series)} series in {target}")


def _write(series: Sequence[MetricSeries], file: TextIO) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(("name", "decoding", "step", "attempt", "value"))
    for each in series:
        for point in each.points:
            names = csv_cell(each.name), csv_cell(each.decoding)
            writer.writerow((*names, point.step, point.attempt, point.value))
