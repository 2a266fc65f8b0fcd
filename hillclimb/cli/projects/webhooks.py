"""`webhooks`: addresses that receive the project's events."""

from __future__ import annotations

import sys
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import (
    minute,
    out,
    print_json,
    print_table,
    print_text,
    table,
    timestamp,
)
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.paging import limit_option

ID = click.argument("webhook_id", metavar="WEBHOOK")
EVENT = click.option(
    "--event", "events", multiple=True, metavar="TYPE", help="Send only these types of events."
)
NOTE = "A note for people."


@main.group()
def webhooks() -> None:
    """Send the project's events to addresses of your own, signed (docs/webhooks.md)."""


@webhooks.command()
@click.argument("url")
@EVENT
@click.option("--description", default="", help=NOTE)
@command
def create(*, url: str, events: tuple[str, ...], description: str, as_json: bool) -> None:
    """Create a webhook to URL, and print the secret that signs its messages, this once."""
    with connect() as client:
        webhook = client.webhooks.create(url, events=events, description=description)
    if as_json:
        print_json(webhook)
        return
    out.print(f"{webhook.id}  {webhook.url}", highlight=False, soft_wrap=True)
    out.print(f"secret  {webhook.secret}", highlight=False, soft_wrap=True)
    print_text(f"It is not shown again. `hillclimb webhooks test {webhook.id}` sends a message.")


@webhooks.command("list")
@command
def list_(*, as_json: bool) -> None:
    """List webhooks, and since when their deliveries fail."""
    with connect() as client:
        page = client.webhooks.list()
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each.id,
            each.url,
            ", ".join(each.events) or "all",
            "yes" if each.is_enabled else f"no: {each.disabled_reason}",
            "–" if each.failing_since is None else minute(each.failing_since),
        )
        for each in page.data
    ]
    empty = "no webhooks: hillclimb webhooks create URL creates one"
    columns = ["id", "url|", "events|", "enabled|", "failing since (UTC)"]
    print_table(table(columns, rows), empty=empty)


@webhooks.command()
@ID
@click.option("--url", help="Another address.")
@EVENT
@click.option("--all-events", is_flag=True, help="Send all types of events.")
@click.option("--description", help=NOTE)
@click.option("--enable/--disable", "enabled", default=None, help="Send, or send nothing.")
@command
def change(
    *, webhook_id: str, events: tuple[str, ...], all_events: bool, as_json: bool, **options: Any
) -> None:
    """Change WEBHOOK, disable it, or enable it again."""
    changes = {key: value for key, value in options.items() if value is not None}
    if events or all_events:
        changes["events"] = list(events)
    if events and all_events:
        raise click.UsageError("--event and --all-events exclude each other")
    if not changes:
        raise click.UsageError("nothing to change: give an option")
    with connect() as client:
        webhook = client.webhooks.change(webhook_id, changes)
    if as_json:
        print_json(webhook)
    else:
        out.print(f"{webhook.id} is {'enabled' if webhook.is_enabled else 'disabled'}")


@webhooks.command()
@ID
@click.option(
    "--grace-hours", type=FiniteRange(0, 720), default=24.0, show_default=True,
    help="Hours for which the secret before signs every message too.",
)  # fmt: skip
@command
def rotate(*, webhook_id: str, grace_hours: float, as_json: bool) -> None:
    """Give WEBHOOK a new signing secret and print it; a second rotation ends the first one."""
    with connect() as client:
        webhook = client.webhooks.rotate(webhook_id, grace_hours=grace_hours)
    if as_json:
        print_json(webhook)
        return
    out.print(f"secret  {webhook.secret}", highlight=False, soft_wrap=True)
    if webhook.previous_until is not None:
        until = timestamp(webhook.previous_until)
        print_text(f"It is not shown again. Until {until} the secret before signs messages too.")


@webhooks.command()
@ID
@command
def delete(*, webhook_id: str, as_json: bool) -> None:
    """Delete WEBHOOK with its deliveries, the pending ones too."""
    with connect() as client:
        deleted = client.webhooks.delete(webhook_id)
    if as_json:
        print_json(deleted)
    else:
        out.print(f"{webhook_id} is deleted")


@webhooks.command()
@ID
@command
def test(*, webhook_id: str, as_json: bool) -> None:
    """Send a test message to WEBHOOK now; exit code 1 if it is not accepted."""
    with connect() as client:
        result = client.webhooks.test(webhook_id)
    if as_json:
        print_json(result)
    elif result.delivered:
        out.print(f"delivered: status {result.status_code}")
    else:
        out.print(f"not delivered: {result.error}", highlight=False, soft_wrap=True)
    if not result.delivered:
        sys.exit(Exit.ERROR)


@webhooks.command()
@ID
@click.option("--before", type=click.IntRange(min=1), metavar="DELIVERY", help="Older ones.")
@limit_option(20)
@command
def deliveries(*, webhook_id: str, before: int | None, limit: int, as_json: bool) -> None:
    """List deliveries of WEBHOOK, newest first, with the result of the last try."""
    with connect() as client:
        page = client.webhooks.deliveries(webhook_id, before=before, limit=limit)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            str(each.id),
            each.event,
            each.run_id,
            each.state,
            str(each.num_attempts),
            each.error or ("–" if each.status_code is None else str(each.status_code)),
        )
        for each in page.data
    ]
    columns = ["id>", "event", "run", "state", "tries>", "result|"]
    print_table(table(columns, rows), empty="nothing was sent yet")
    if page.has_more:
        print_text(f"Older ones: --before {page.data[-1].id}")
