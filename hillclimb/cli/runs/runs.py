"""`runs`, `show`, `logs`, `trajectories`: read runs, logs and rollouts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from hillclimb.cli.clusters.clusters import print_outlook
from hillclimb.cli.console import (
    json_of,
    out,
    percent,
    print_json,
    print_table,
    print_text,
    styled_status,
    table,
    timestamp,
)
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.report import print_report
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.protocol.payloads.events import EventPage, EventPayload
from hillclimb.protocol.payloads.results.logs import LogPayload
from hillclimb.protocol.payloads.results.reports import ReportPayload
from hillclimb.protocol.payloads.results.rollouts import RolloutWithTrajectory
from hillclimb.protocol.payloads.runs import RunSummary

MAX_WARNINGS = 50
LEVELS = click.Choice(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), case_sensitive=False)


@main.command()
@click.option("--status", help="Only runs in this status.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200))
@click.option("--cursor", help="Cursor of the next page.")
@command
def runs(*, status: str | None, limit: int, cursor: str | None, as_json: bool) -> None:
    """List runs, newest first."""
    with connect() as client:
        page = client.runs(status=status, limit=limit, cursor=cursor)
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
@command
def show(*, run_id: str, with_spec: bool, as_json: bool) -> None:
    """Show RUN: status and its reason, attempts, and the before/after table once available."""
    with connect() as client:
        run = client.run(run_id)
        report = _report_or_none(client, run_id)
        warnings = client.events(run_id, types="run.warning", limit=MAX_WARNINGS)
    if as_json:
        sentences = [event.data["message"] for event in warnings.data]
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
    if run.spec.get("kind", "train") != "train":
        print_text(_instead_of_training(run.spec))
    _print_warnings(warnings)
    if with_spec:
        print_json(run.spec)
    if report:
        print_report(report)


def _print_warnings(page: EventPage) -> None:
    for line in warning_lines(page.data):
        print_text(line, style="yellow")
    if page.has_more:
        print_text("and more warnings: see the run's page", style="yellow")


def warning_lines(events: Sequence[EventPayload]) -> Iterator[str]:
    """Yield a line per distinct warning, with its number and range of steps."""
    steps: dict[str, list[int | None]] = {}
    for event in events:
        steps.setdefault(event.data["message"], []).append(event.data.get("step"))
    for message, at in steps.items():
        known = [step for step in at if step is not None]
        where = f", steps {min(known)} to {max(known)}" if len(set(known)) > 1 else ""
        times = f" ({len(at)} times{where})" if len(at) > 1 else ""
        yield f"warning{times}: {message}"


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


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run has ended.")
@click.option("--attempt", type=click.IntRange(1), help="Attempt; default: the newest.")
@click.option("--level", type=LEVELS, help="Only lines of this level or above.")
@click.option("--component", help="Only lines of this component: node, rollouts, trainer.engines.")
@click.option("--env", "environment", help="Only lines about this environment.")
@click.option("--grep", "text", metavar="TEXT", help="Only lines with this text, in either case.")
@command
def logs(
    *, run_id: str, follow: bool, attempt: int | None, as_json: bool, **filters: str | None
) -> None:
    """Print the log of RUN: the lines of the trainer and of its node."""
    with connect() as client:
        pages = (
            client.follow_logs(run_id, attempt=attempt, filters=filters)
            if follow
            else _log_so_far(client, run_id, attempt, filters)
        )
        for page in pages:
            if as_json:
                print_json(page)
            else:
                click.echo(page.text, nl=False)


def _log_so_far(
    client: Client, run_id: str, attempt: int | None, filters: Mapping[str, str | None]
) -> Iterator[LogPayload]:
    page, after = client.logs(run_id, attempt=attempt, filters=filters), 0
    yield page
    while page.next_offset > after:
        after = page.next_offset
        page = client.logs(run_id, attempt=attempt, after=after, filters=filters)
        if page.text:
            yield page


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--failed", is_flag=True, help="Only graded rollouts that did not pass.")
@click.option("--env", help="Only this environment.")
@click.option("--step", type=int, help="Only this step.")
@click.option("--decoding", help="train, or the name of an eval decoding.")
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 200))
@click.option("--show", "rollout_id", metavar="ROLLOUT", help="Print one rollout turn by turn.")
@command
def trajectories(*, run_id: str, rollout_id: str | None, as_json: bool, **filters: Any) -> None:
    """List rollouts of RUN with their outcomes, or show one."""
    filters["failed"] = "true" if filters["failed"] else None
    with connect() as client:
        if rollout_id:
            _print_trajectory(client.trajectory(run_id, rollout_id), as_json=as_json)
            return
        page = client.trajectories(run_id, **filters)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            row.rollout_id,
            row.env_key,
            row.decoding,
            row.status if row.score is None else percent(row.score),
            row.stop_reason,
            row.num_turns,
        )
        for row in page.data
    ]
    print_table(table(["rollout", "env", "decoding", "score>", "stopped", "turns>"], rows))


def _print_trajectory(rollout: RolloutWithTrajectory, *, as_json: bool) -> None:
    if as_json:
        print_json(rollout)
        return
    task = rollout.trajectory.task
    variables = "  ".join(f"{name}={value}" for name, value in task.env_variables.items())
    print_text(f"{task.key}  {variables}", style="bold")
    print_text(task.prompt)
    for turn in rollout.trajectory.turns:
        print_text(turn.response, style="cyan")
        if turn.observation is not None:
            print_text(turn.observation, style="red" if turn.is_error else "dim")
    reason = rollout.reason or rollout.cause or rollout.stop_reason
    print_text(f"{rollout.status}, score {rollout.score}: {reason}")
