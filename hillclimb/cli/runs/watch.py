"""`watch`: a live view of one run until it ends; the exit code says how it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import click
from rich.live import Live

from hillclimb.cli.console import err, out, print_text
from hillclimb.cli.exits import RUN_STATUS_EXIT, Exit
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.view import lines_of_event, render
from hillclimb.client import Client
from hillclimb.run_view import apply, from_run
from hillclimb.sse import ServerEvent


@main.command()
@click.argument("run_id", metavar="RUN")
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
        err.print(f"no longer watching; the run goes on: hillclimb watch {run_id}", soft_wrap=True)
        raise
    run = client.run(run_id)
    if not as_json:
        reason = run.get("end_reason") or {}
        print_text(f"{run_id} {run['status']}: {reason.get('message') or ''}")
        if run["status"] == "paused":
            print_text(f"when the cause is mended: hillclimb resume {run_id} --watch")
    return int(RUN_STATUS_EXIT.get(run["status"], Exit.ERROR))


def _follow(client: Client, run_id: str, *, as_json: bool) -> None:
    if as_json:
        for event in _until_paused(client, run_id):
            click.echo(json.dumps(event.data, separators=(",", ":")))
    elif out.is_terminal:
        _follow_live(client, run_id)
    else:
        _follow_plain(client, run_id)


def _until_paused(client: Client, run_id: str) -> Iterator[ServerEvent]:
    """Yield events until the run has ended or waits for somebody to resume it.

    The stream begins with the past: a pause in it may be over.
    """
    for event in client.follow(run_id):
        yield event
        paused = event.name == "run.status_changed" and event.data["data"]["to"] == "paused"
        if paused and client.run(run_id)["status"] == "paused":
            return


def _follow_live(client: Client, run_id: str) -> None:
    view = from_run(client.run(run_id))
    with Live(render(view), console=out, refresh_per_second=4) as live:
        for event in _until_paused(client, run_id):
            view = apply(view, event.name, event.data["data"])
            live.update(render(view))


def _follow_plain(client: Client, run_id: str) -> None:
    """One line per noteworthy event, for logs and pipes."""
    view = from_run(client.run(run_id))
    for event in _until_paused(client, run_id):
        view = apply(view, event.name, event.data["data"])
        for line in lines_of_event(view, event.name):
            print_text(line)
