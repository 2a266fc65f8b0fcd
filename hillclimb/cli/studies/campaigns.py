"""`campaign`: evaluate several models on several datasets, repeatedly, as one object."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import VERDICT_STYLE, p_value_text, rate_with_interval
from hillclimb.cli.runs.submission.submit import SET
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.client.spec_file import read_spec
from hillclimb.protocol.payloads.results.evals import RatePayload
from hillclimb.protocol.payloads.studies.campaigns import (
    CampaignPayload,
    CampaignResult,
    CampaignSummary,
    CellPayload,
    CellState,
)
from hillclimb.stats.intervals import points_text

CELLS = ("cell>", "model", "dataset", "repeat>", "state", "run")
RESULTS = ("model", "dataset", "decoding", "done>", "tasks>", "rate %>", "delta>", "p>", "verdict")
STYLES = {
    CellState.DONE: "green",
    CellState.RUNNING: "cyan",
    CellState.BLOCKED: "red",
    CellState.RETRYABLE: "yellow",
}
FILE = click.argument("spec_file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
ID = click.argument("campaign_id", metavar="CAMPAIGN")


@main.group()
def campaign() -> None:
    """Evaluate several models on several datasets, repeatedly, as one object."""


@campaign.command("create")
@FILE
@SET
@click.option("--idempotency-key", metavar="KEY", help="Repetitions with this key create only one.")
@command
def create(
    *, spec_file: Path, assignments: tuple[str, ...], idempotency_key: str | None, as_json: bool
) -> None:
    """Launch the campaign of FILE (YAML or JSON).

    An evaluation that another campaign of the project has already is shared, not repeated.
    """
    spec = read_spec(spec_file, assignments)
    with connect() as client:
        _print_cells(
            client.campaigns.create(spec, idempotency_key=idempotency_key), as_json=as_json
        )


@campaign.command("list")
@limit_option(20, most=100)
@click.option("--before", metavar="CAMPAIGN", help="Only older ones than this.")
@command
def list_campaigns(*, limit: int, before: str | None, as_json: bool) -> None:
    """List campaigns, newest first."""
    with connect() as client:
        page = client.campaigns.list(before=before, limit=limit)
    if as_json:
        print_json(page)
        return
    rows = [(each.id, each.name, _states(each)) for each in page.data]
    empty = "no campaigns: hillclimb campaign create FILE creates one"
    print_table(table(("campaign", "name", "cells"), rows), empty=empty)


@campaign.command("show")
@ID
@command
def show(*, campaign_id: str, as_json: bool) -> None:
    """Show the cells of CAMPAIGN with their runs."""
    with connect() as client:
        _print_cells(client.campaigns.get(campaign_id), as_json=as_json)


@campaign.command("table")
@ID
@click.option("-k", type=click.IntRange(1, 256), default=1, show_default=True, help="Of pass@k.")
@command
def results(*, campaign_id: str, k: int, as_json: bool) -> None:
    """Print the results of CAMPAIGN so far, with 95 % intervals and verdicts.

    Repeats are pooled task by task; verdicts are against the first model on the same tasks.
    """
    with connect() as client:
        payload = client.campaigns.table(campaign_id, k=k)
    if as_json:
        print_json(payload)
        return
    kind = "all cells are done" if payload.is_complete else "not all cells are done"
    figures = f"pass@{payload.k}, baseline {payload.baseline}"
    out.print(f"[bold]{payload.name}[/bold], {figures}; {kind}")
    print_table(table(RESULTS, [_result_row(each, k=payload.k) for each in payload.data]))


@campaign.command("retry")
@ID
@command
def retry(*, campaign_id: str, as_json: bool) -> None:
    """Launch the cells of CAMPAIGN again that have no result and may get one."""
    with connect() as client:
        _print_cells(client.campaigns.retry(campaign_id), as_json=as_json)


@campaign.command("cancel")
@ID
@command
def cancel(*, campaign_id: str, as_json: bool) -> None:
    """Cancel the runs of CAMPAIGN that no other campaign shares; results so far stay."""
    with connect() as client:
        _print_cells(client.campaigns.cancel(campaign_id), as_json=as_json)


def _print_cells(payload: CampaignPayload, *, as_json: bool) -> None:
    if as_json:
        print_json(payload)
        return
    out.print(f"{payload.id}  {_states(payload)}", soft_wrap=True)
    print_table(table(CELLS, [_cell_row(each) for each in payload.cells]))
    for each in payload.cells:
        if each.why is not None:
            print_text(f"cell {each.number}: {each.why}", style="dim")


def _cell_row(cell: CellPayload) -> Sequence[object]:
    place = (cell.number, cell.model, cell.dataset or "–", cell.repeat)
    return (*place, _styled(cell.state), cell.run_id)


def _states(summary: CampaignSummary) -> str:
    ordered: Sequence[CellState] = tuple(CellState)
    return ", ".join(
        f"{summary.states[state]} {state}" for state in ordered if summary.states.get(state)
    )


def _styled(state: CellState) -> str:
    style = STYLES.get(state)
    return f"[{style}]{state}[/{style}]" if style else str(state)


def _result_row(result: CampaignResult, *, k: int) -> Sequence[object]:
    value, low, high = _rate(result.all, k)
    against = result.against_baseline
    compared: tuple[object, ...] = ("", "", "")
    if against is not None:
        style = VERDICT_STYLE.get(against.verdict)
        word = against.verdict.upper()
        verdict = f"[{style}]{word}[/{style}]" if style else word
        compared = (points_text(against.delta), p_value_text(against.p_adjusted), verdict)
    return (
        result.model,
        result.dataset or "–",
        result.decoding,
        f"{result.num_done}/{result.num_repeats}",
        result.all.num_tasks,
        rate_with_interval(value, (low, high)),
        *compared,
    )


def _rate(rate: RatePayload, k: int) -> tuple[float | None, float, float]:
    if k > 1 and rate.pass_at_n is not None:
        return rate.pass_at_n.value, rate.pass_at_n.low, rate.pass_at_n.high
    return rate.pass_at_1, rate.low, rate.high
