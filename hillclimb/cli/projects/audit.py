"""`audit`: the audit log of the project."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import minute, print_json, print_table, print_text, table
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.protocol.payloads.projects.access import AuditPayload

COLUMNS = ("time (UTC)", "who|", "route|", "target|", "changes|")
WRITTEN = "in UTC: 2026-08-22 or 2026-08-22T15:04:05."
TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])


@main.command()
@click.option("--actor", help="Such as key:ci or person:ADDRESS.")
@click.option("--route", help="Part of method and path, such as DELETE or /v1/keys.")
@click.option("--target", metavar="ID", help="Id of what was changed.")
@click.option("--since", type=TIME, metavar="TIME", help=f"Only from then on, {WRITTEN}")
@click.option("--until", type=TIME, metavar="TIME", help=f"Only until then, {WRITTEN}")
@limit_option(50)
@click.option("--before", metavar="ID", help="Only older records than this.")
@command
def audit(
    *,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    as_json: bool,
    **filters: str | None,
) -> None:
    """List the changes of the project, newest first: one per successful request."""
    with connect() as client:
        page = client.access.audit(since=_utc(since), until=_utc(until), limit=limit, **filters)
    if as_json:
        print_json(page)
        return
    print_table(table(COLUMNS, [_row(record) for record in page.data]))
    if page.has_more:
        print_text(f"more: hillclimb audit --before {page.data[-1].id}", style="dim")


def _utc(moment: datetime | None) -> str | None:
    return None if moment is None else moment.replace(tzinfo=UTC).isoformat()


def _row(record: AuditPayload) -> list[object]:
    changes = [
        f"{change['table']} {name}: {change['before'].get(name, '–')} → {value}"
        for change in record.changes
        for name, value in change["after"].items()
    ]
    return [
        minute(record.created_at),
        record.actor,
        record.route,
        record.target or "–",
        "\n".join(changes).replace("[", r"\["),
    ]
