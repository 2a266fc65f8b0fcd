"""`runs`, `show`: read runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import click

from hillclimb.cli.clusters.budgets import print_outlook
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.annotate import print_annotations
from hillclimb.cli.runs.results.report import VERDICT_STYLE, by_option, print_report
from hillclimb.cli.runs.watch import print_conclusion
from hillclimb.cli.terminal.console import (
    age,
    duration,
    json_of,
    out,
    print_json,
    print_table,
    print_text,
    styled_status,
    table,
    timestamp,
)
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.client.run_view import WARNING_TYPES, plain, warning_of
from hillclimb.protocol.payloads.events import EventPage, EventPayload
from hillclimb.protocol.payloads.results.reports import ReportPayload
from hillclimb.protocol.payloads.runs import ResultPayload, RunSummary

MAX_WARNINGS = 50
LEAST_ID_CHARS = 14
"""Of a run's id in a list: `run_` and the millisecond of its creation."""


@main.command()
@click.option("--status", help="Only runs in this status, such as running or failed.")
@click.option("--kind", help="Only train, eval, probe, validate, preview or sft.")
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="Only runs with this tag; repeatable."
)
@limit_option(20)
@click.option("--cursor", help="Cursor of the next page.")
@command
def runs(
    *, limit: int, cursor: str | None, tags: tuple[str, ...], as_json: bool, **filters: str | None
) -> None:
    """List runs, newest first."""
    with connect() as client:
        page = client.runs(
            limit=limit, cursor=cursor, tag=list(tags) or None, results="true", **filters
        )
    if as_json:
        print_json(page)
        return
    print_runs(page.data)
    if page.has_more:
        more = f"more: hillclimb runs --limit {limit} --cursor {page.next_cursor}"
        chosen = "".join(f" --{name} {value}" for name, value in filters.items() if value)
        print_text(more + chosen + "".join(f" --tag {tag}" for tag in tags), style="dim")


def print_runs(runs: Sequence[RunSummary]) -> None:
    """Print a line per run: the beginning of its id, which names it, and what came out."""
    if not runs:
        print_text("no runs: hillclimb submit SPEC creates one")
        return
    length = _id_length([run.id for run in runs])
    rows = [
        (
            run.id[:length],
            run.name,
            run.kind,
            _status(run),
            _rates(run.result),
            _verdict(run.result),
            age(run.created_at),
            duration(_seconds(run)),
        )
        for run in runs
    ]
    columns = ("run", "name~", "kind", "status", "pass@1 %>", "verdict", "age>", "duration>")
    print_table(table(columns, rows))


def _id_length(ids: Sequence[str]) -> int:
    """Return the shortest length at which the ids differ, at least `LEAST_ID_CHARS`."""
    length = LEAST_ID_CHARS
    while len({each[:length] for each in ids}) < len(ids):
        length += 1
    return length


def _status(run: RunSummary) -> str:
    """Return the status, with the step of a run that trains."""
    has_ended = run.ended_at is not None or not run.progress.step
    return styled_status(run.status) + ("" if has_ended else f" {_progress(run)}")


def _rates(result: ResultPayload | None) -> str:
    if result is None or result.after is None:
        return "–"
    after = f"{100 * result.after:.0f}"
    return after if result.before is None else f"{100 * result.before:.0f} → {after}"


def _verdict(result: ResultPayload | None) -> str:
    verdict = result.verdict if result is not None else None
    if verdict is None:
        return "–"
    style = VERDICT_STYLE.get(verdict)
    return f"[{style}]{verdict.upper()}[/{style}]" if style else verdict.upper()


def _seconds(run: RunSummary) -> float | None:
    """Return the duration since the trainer first started: the time in the queue is not in it."""
    if run.started_at is None:
        return None
    return ((run.ended_at or datetime.now(UTC)) - run.started_at).total_seconds()


def _progress(run: RunSummary) -> str:
    return f"{run.progress.step}/{run.progress.total or '–'}"


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--spec", "with_spec", is_flag=True, help="Print the resolved spec too.")
@by_option
@command
def show(*, run_id: str, with_spec: bool, by: str, as_json: bool) -> None:
    """Show RUN: status and its reason, attempts, and the before/after table once available."""
    with connect() as client:
        run = client.run(run_id)
        report = _report_or_none(client, run_id)
        warnings = client.events(run_id, types=",".join(WARNING_TYPES), limit=MAX_WARNINGS)
    if as_json:
        sentences = [warning_of(event.type, event.data) for event in warnings.data]
        report_json = None if report is None else json_of(report)
        print_json(json_of(run) | {"report": report_json, "warnings": sentences})
        return
    out.print(f"[bold]{run.name}[/bold]  {run.id}  {styled_status(run.status)}")
    if run.end_reason is not None and run.end_reason.message:
        print_text(plain(run.end_reason.message))
    elif run.queue is not None:
        print_text(f"{run.queue.reason or 'It is next.'} (position {run.queue.position})")
    out.print(f"step {_progress(run)}  attempt {run.attempt}  created {timestamp(run.created_at)}")
    print_annotations(run)
    if run.cost is not None:
        print_outlook(run.cost)
    _print_origin(run.spec)
    _print_warnings(warnings)
    if with_spec:
        print_json(run.spec)
    if report:
        print_report(report, by=by)
    print_conclusion(run)


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
        steps.setdefault(warning_of(event.type, event.data), []).append(event.data.get("step"))
    for message, at in steps.items():
        known = [step for step in at if step is not None]
        where = f", steps {min(known)} to {max(known)}" if len(set(known)) > 1 else ""
        times = f" ({len(at)} times{where})" if len(at) > 1 else ""
        yield f"warning{times}: {message}"


def _instead_of_training(spec: dict[str, Any]) -> str:
    if spec["kind"] == "validate":
        return "validates tasks and trains nothing"
    if spec["kind"] == "sft":
        run_id = spec["sft"]["rollouts_of"]
        source = spec["sft"]["demonstrations"] if run_id is None else f"the rollouts of {run_id}"
        return f"imitates {source}, from {spec['model']['source']}"
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
