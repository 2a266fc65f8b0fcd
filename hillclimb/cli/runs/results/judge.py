"""`judge`: the verdicts that a printed table of pass rates allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import VERDICT_STYLE
from hillclimb.cli.terminal.console import print_json, print_table, print_text, table
from hillclimb.client.errors import TableTextError
from hillclimb.client.imports.printed_table import read_printed_table
from hillclimb.protocol.payloads.results.reports import PossibleVerdictsPayload, Span

COLUMNS = ("environment", "n>", "printed", "p>", "verdict")


@main.command()
@click.argument("file", metavar="FILE", type=click.File("rb"))
@click.option(
    "--max-tasks", type=click.IntRange(1, 300), default=30, show_default=True,
    help="Most tasks of a row that names no number.",
)  # fmt: skip
@click.option("--rule", type=click.Choice(["v1", "v2"]), default="v2", show_default=True,
              help="Version of the rule of verdicts.")  # fmt: skip
@command
def judge(*, file: IO[bytes], max_tasks: int, rule: str, as_json: bool) -> None:
    """Judge the first Markdown table of pass rates in FILE (`-`: standard input).

    Columns: environment, rate before, rate after (46.7% or 14/30); a column `n` has the number of
    tasks. A row `overall` narrows the numbers that the others may stand for. p and verdict are
    ranges over all pairings of tasks before and after that print like this.
    """
    try:
        body = read_printed_table(file.read().decode())
    except UnicodeDecodeError as error:
        raise TableTextError(f"{file.name} is no text: {error.reason}") from error
    with connect() as client:
        judged = client.judge_table({**body, "max_tasks": max_tasks, "rule": rule})
    if as_json:
        print_json(judged)
        return
    overall = [] if judged.overall is None else [judged.overall]
    print_table(table(COLUMNS, [_row(each) for each in (*judged.rows, *overall)]))
    for each in overall:
        if not each.counts:
            print_text(f"{each.before} → {each.after} over all tasks are not the rates of the rows")
    print_text(
        "p (of the row alone) and verdict over all pairings that print like this; rule"
        f" {judged.rule} corrects p: --json has both",
        style="dim",
    )


def _row(each: PossibleVerdictsPayload) -> list[object]:
    return [
        each.name,
        _numbers([counts.num_tasks for counts in each.counts]),
        f"{each.before} → {each.after}" if each.before else "",
        _range(each.p_value),
        " or ".join(_word(word) for word in each.verdicts) or "–",
    ]


def _numbers(values: Sequence[int]) -> str:
    if not values:
        return "–"
    return f"{min(values)}" if min(values) == max(values) else f"{min(values)}–{max(values)}"


def _range(span: Span | None) -> str:
    """Return the least and the largest p with two digits each."""
    if span is None:
        return "–"
    low, high = (f"{value:.2g}" for value in span)
    return low if low == high else f"{low}–{high}"


def _word(word: str) -> str:
    style = VERDICT_STYLE.get(word)
    return f"[{style}]{word}[/{style}]" if style else word
