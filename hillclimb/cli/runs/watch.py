"""`watch`: a live view of one run until it ends, with an exit code by its status."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click
from rich.live import Live

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.view import lines_of_event, render
from hillclimb.cli.terminal.console import err, json_of, out, print_text
from hillclimb.cli.terminal.exits import RUN_STATUS_EXIT, Exit
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.client.run_view import apply, from_run, plain
from hillclimb.protocol.payloads.events import EventPayload
from hillclimb.protocol.payloads.runs import RunPayload
from hillclimb.protocol.payloads.statuses import RunStatus
from hillclimb.stats.conclusion import ConclusionWord

CONCLUSION_STYLE: dict[str, str] = {
    ConclusionWord.IMPROVED: "green",
    ConclusionWord.REGRESSED: "red",
    ConclusionWord.NO_GRADIENT: "yellow",
    ConclusionWord.NO_STEPS: "yellow",
    ConclusionWord.INCONCLUSIVE: "yellow",
}


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@command
def watch(*, run_id: str, as_json: bool) -> None:
    """Follow RUN to its end, or until it is paused. With --json: one event per line."""
    with connect() as client:
        sys.exit(follow_run(client, run_id, as_json=as_json))


def follow_run(client: Client, run_id: str, *, as_json: bool) -> int:
    """Show the run until it has ended and return the exit code for its status."""
    try:
        _follow(client, run_id, as_json=as_json)
    except KeyboardInterrupt:
        err.print(f"stopped watching; the run continues: hillclimb watch {run_id}", soft_wrap=True)
        raise
    run = client.run(run_id)
    if not as_json:
        message = run.end_reason.message if run.end_reason is not None else ""
        print_text(f"{run_id} {run.status}: {plain(message)}")
        print_conclusion(run)
        if run.status is RunStatus.PAUSED:
            print_text(f"once the cause is fixed: hillclimb resume {run_id} --watch")
    return int(exit_of(run))


def exit_of(run: RunPayload) -> Exit:
    """Return the exit code of a run that ended or is paused."""
    code = RUN_STATUS_EXIT.get(run.status, Exit.ERROR)
    if code is Exit.OK and run.conclusion is not None and not run.conclusion.has_learned:
        return Exit.NOTHING_LEARNED
    return code


def print_conclusion(run: RunPayload) -> None:
    """Print what the run has shown, in one line; yellow where nothing was learned."""
    if run.conclusion is not None:
        style = CONCLUSION_STYLE.get(run.conclusion.word, "")
        print_text(run.conclusion.sentence.replace(" RUN", f" {run.id}"), style=style)


def _follow(client: Client, run_id: str, *, as_json: bool) -> None:
    if as_json:
        for event in _until_paused(client, run_id):
            click.echo(json.dumps(json_of(event), separators=(",", ":")))
    elif out.is_terminal:
        _follow_live(client, run_id)
    else:
        _follow_plain(client, run_id)


def _until_paused(client: Client, run_id: str) -> Iterator[EventPayload]:
    """Yield events until the run has ended or is paused.

    The stream begins with past events: a pause among them may be over.
    """
    for event in client.follow(run_id):
        yield event
        is_pause = event.type == "run.status_changed" and event.data["to"] == "paused"
        if is_pause and client.run(run_id).status is RunStatus.PAUSED:
            return


def _follow_live(client: Client, run_id: str) -> None:
    view = from_run(client.run(run_id))
    # The clock goes on between events: each refresh draws the view anew.
    with Live(
        get_renderable=lambda: render(view, datetime.now(UTC)), console=out, refresh_per_second=4
    ) as live:
        for event in _until_paused(client, run_id):
            view = apply(view, event.type, event.data, event.created_at)
            live.refresh()


def _follow_plain(client: Client, run_id: str) -> None:
    """Print one line per important event, for logs and pipes."""
    run = client.run(run_id)
    if run.queue is not None:
        print_text(f"status {run.status}: {run.queue.reason or 'it is next'}")
    view = from_run(run)
    for event in _until_paused(client, run_id):
        view = apply(view, event.type, event.data)
        for line in lines_of_event(view, event.type):
            print_text(line)
