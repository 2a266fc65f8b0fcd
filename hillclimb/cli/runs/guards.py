"""`guards`: the conditions under which a run is reported, paused or stopped."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import (
    out,
    print_json,
    print_table,
    print_text,
    table,
    timestamp,
)
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.events import GuardPayload, GuardTripPayload

COLUMNS = ("guard", "policy", "state", "measured>", "limit>", "trips>")
STYLES = {"tripped": "red", "armed": "green"}


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--acknowledge", metavar="GUARD", help="Note that you have seen why GUARD tripped.")
@command
def guards(*, run_id: str, acknowledge: str | None, as_json: bool) -> None:
    """Show the guards of RUN: what each measures now, and what it would take to trip."""
    with connect() as client:
        if acknowledge is not None:
            client.acknowledge_guard(run_id, acknowledge)
        report = client.guards(run_id)
    if as_json:
        print_json(report)
        return
    if not report.guards:
        print_text("this run has no guards")
        return
    print_table(table(COLUMNS, [_row(each) for each in report.guards]))
    for each in report.guards:
        if each.evidence is not None:
            needs = f"; trips with {each.needs}" if each.needs else ""
            print_text(f"{each.guard}: {each.evidence.message}{needs}", style="dim")
    if report.trips:
        out.print("[bold]episodes[/bold], newest first")
    for trip in report.trips:
        print_text(_episode(trip))


def _row(guard: GuardPayload) -> list[object]:
    evidence = guard.evidence
    measured = None if evidence is None else evidence.measured
    style = STYLES.get(guard.status)
    return [
        guard.guard,
        guard.policy or "–",
        f"[{style}]{guard.status}[/{style}]" if style else guard.status,
        "–" if evidence is None or measured is None else _value(measured, evidence.unit),
        "–" if evidence is None else _value(evidence.threshold, evidence.unit),
        guard.num_trips,
    ]


def _value(value: float, unit: str) -> str:
    if unit == "share":
        return f"{value:.1%}"
    if unit in ("steps", "evaluations"):
        return f"{value:.0f}"
    return f"{value:.0f} s" if unit == "seconds" else f"{value:.2g}"


def _episode(trip: GuardTripPayload) -> str:
    seen = f", acknowledged by {trip.acknowledged_by}" if trip.acknowledged_by else ""
    end = "lasts" if trip.cleared_at is None else f"over at step {trip.cleared_step}"
    return (
        f"{timestamp(trip.tripped_at)}  step {trip.step}, attempt {trip.attempt}  {trip.message}"
        f"  [{trip.action}, {end}{seen}]"
    )
