"""`runs`, `show`: read runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from hillclimb.cli.clusters.budgets import print_outlook
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import by_option, print_report
from hillclimb.cli.terminal.console import (
    json_of,
    out,
    print_json,
    print_table,
    print_text,
    styled_status,
    table,
    timestamp,
)
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.protocol.payloads.events import EventPage, EventPayload
from hillclimb.protocol.payloads.results.reports import ReportPayload
from hillclimb.protocol.payloads.runs import RunSummary

MAX_WARNINGS = 50


@main.command()
@click.option("--status", help="Only runs in this status.")
@click.option("--kind", help="Only train, eval, probe, validate or preview.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200))
@click.option("--cursor", help="Cursor of the next page.")
@command
def runs(*, limit: int, cursor: str | None, as_json: bool, **filters: str | None) -> None:
    """List runs, newest first."""
    with connect() as client:
        page = client.runs(limit=limit, cursor=cursor, **filters)
    if as_json:
        print_json(page)
        return
    rows = [
        (run.id, run.name, styled_status(run.status), _progress(run), timestamp(run.created_at))
        for run in page.data
    ]
    print_table(table(["run", "name", "status", "step>", "created"], rows))
    if page.has_more:
        out.print(f"more: hillclimb runs --cursor {page.next_cursor}", style="dim")


def _progress(run: RunSummary) -> str:
    return f"{run.progress.step}/{run.progress.total or '–'}"


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--spec", "with_spec", is_flag=True, help="Print the resolved spec too.")
@by_option
@command
def show(*, run_id: str, with_spec: bool, by: str, as_json: bool) -> None:
    """Show RUN: status and its reason, attempts, and the before/after table once available."""
    with connect() as client:
        run = client.run(run_id)
        report = _report_or_none(client, run_id)
        warnings = client.events(run_id, types="run.warning,guard.tripped", limit=MAX_WARNINGS)
    if as_json:
        sentences = [_sentence(event) for event in warnings.data]
        report_json = None if report is None else json_of(report)
        print_json(json_of(run) | {"report": report_json, "warnings": sentences})
        return
    out.print(f"[bold]{run.name}[/bold]  {run.id}  {styled_status(run.status)}")
    if run.end_reason is not None and run.end_reason.message:
        print_text(run.end_reason.message)
    elif run.queue is not None:
        print_text(f"{run.queue.reason or 'It is next.'} (position {run.queue.position})")
    out.print(f"step {_progress(run)}  attempt {run.attempt}  created {timestamp(run.created_at)}")
    if run.cost is not None:
        print_outlook(run.cost)
    _print_origin(run.spec)
    _print_warnings(warnings)
    if with_spec:
        print_json(run.spec)
    if report:
        print_report(report, by=by)


def _print_origin(spec: dict[str, Any]) -> None:
    """Print what a run does instead of training, and the run that it was forked from."""
    if spec.get("kind", "train") != "train":
        print_text(_instead_of_training(spec))
    parent = (spec.get("lineage") or {}).get("forked_from")
    if parent is not None:
        step = "" if parent["step"] is None else f"@{parent['step']}"
        print_text(f"forked from {parent['run_id']}{step}")


def _print_warnings(page: EventPage) -> None:
    for line in warning_lines(page.data):
        print_text(line, style="yellow")
    if page.has_more:
        print_text("and more warnings: see the run's page", style="yellow")


def warning_lines(events: Sequence[EventPayload]) -> Iterator[str]:
    """Yield a line per distinct warning, with its number and range of steps."""
    steps: dict[str, list[int | None]] = {}
    for event in events:
        steps.setdefault(_sentence(event), []).append(event.data.get("step"))
    for message, at in steps.items():
        known = [step for step in at if step is not None]
        where = f", steps {min(known)} to {max(known)}" if len(set(known)) > 1 else ""
        times = f" ({len(at)} times{where})" if len(at) > 1 else ""
        yield f"warning{times}: {message}"


def _sentence(event: EventPayload) -> str:
    message = str(event.data["message"])
    return f"guard {message}" if event.type == "guard.tripped" else message


def _instead_of_training(spec: dict[str, Any]) -> str:
    if spec["kind"] == "validate":
        return "validates tasks and trains nothing"
    does = {"eval": "evaluates", "probe": "probes", "preview": "previews"}.get(
        spec["kind"], spec["kind"]
    )
    source = spec["lineage"]["resumed_from"]
    if source is None:
        return f"{does} {spec['model']['source']} and trains nothing"
    return f"{does} step {source['step']} of {source['run_id']} and trains nothing"


def _report_or_none(client: Client, run_id: str) -> ReportPayload | None:
    try:
        return client.report(run_id)
    except ApiProblem as problem:
        if problem.status in (404, 409):
            return None
        raise
