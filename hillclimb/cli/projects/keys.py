"""`keys`, `whoami`: keys of the project, and the caller."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import (
    age,
    print_json,
    print_table,
    print_text,
    table,
    timestamp,
)
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.protocol.payloads.projects.access import IssuedKeyPayload, KeyPayload

COLUMNS = ("id", "name~", "prefix", "scopes|", "last used", "state")
SCOPES = ("runs:read", "runs:write", "runner", "admin", "operator")
OF_ROLE = {
    "viewer": ("runs:read",),
    "member": ("runs:read", "runs:write"),
    "admin": ("runs:read", "runs:write", "admin"),
}
ID = click.argument("key_id", metavar="KEY")


@main.command()
@command
def whoami(*, as_json: bool) -> None:
    """Show the project, key, role and scopes with which this command line acts."""
    with connect() as client:
        caller = client.access.whoami()
    if as_json:
        print_json(caller)
        return
    print_text(f"{caller.actor} in project {caller.project} ({caller.project_id})")
    print_text(f"role {caller.role or 'none'}, scopes {' '.join(caller.scopes)}")
    if caller.email is not None:
        print_text(f"owner {caller.email}")
    if caller.expires_at is not None:
        print_text(f"the key expires {timestamp(caller.expires_at)}")


@main.group()
def keys() -> None:
    """Create, list, rotate and revoke keys of the project."""


@keys.command("create")
@click.argument("name")
@click.option("--role", type=click.Choice(list(OF_ROLE)), help="The scopes of this role.")
@click.option("--scope", "scopes", type=click.Choice(SCOPES), multiple=True, help="Repeatable.")
@click.option("--days", type=FiniteRange(min=0, min_open=True), help="Days until it expires.")
@click.option("--owner", metavar="ADDRESS", help="The member whose role bounds the key.")
@command
def create(
    *,
    name: str,
    role: str | None,
    scopes: tuple[str, ...],
    days: float | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Create a key named NAME and print its secret, which is shown only now."""
    granted = sorted({*scopes, *OF_ROLE.get(role or "", ())})
    if not granted:
        raise click.UsageError("name what the key may do: --role viewer, or --scope runs:read")
    expires_at = None if days is None else datetime.now(UTC) + timedelta(days=days)
    with connect() as client:
        issued = client.access.create_key(name, granted, expires_at=expires_at, owner=owner)
    print_issued(issued, as_json=as_json)


@keys.command("list")
@limit_option(50)
@click.option("--before", metavar="KEY", help="Only older ones than this.")
@command
def list_keys(*, limit: int, before: str | None, as_json: bool) -> None:
    """List keys, newest first, revoked ones too; secrets are never shown."""
    with connect() as client:
        page = client.access.keys(before=before, limit=limit)
    if as_json:
        print_json(page)
        return
    print_table(table(COLUMNS, [_row(key) for key in page.data]))
    if page.has_more:
        print_text(f"more: hillclimb keys list --before {page.data[-1].id}", style="dim")


@keys.command("rotate")
@ID
@click.option(
    "--grace-hours", type=FiniteRange(0, 720), default=24.0, show_default=True,
    help="Hours for which the secret before stays valid.",
)  # fmt: skip
@command
def rotate(*, key_id: str, grace_hours: float, as_json: bool) -> None:
    """Give KEY a new secret and print it; a second rotation ends the first secret at once."""
    with connect() as client:
        issued = client.access.rotate_key(key_id, grace_hours=grace_hours)
    print_issued(issued, as_json=as_json)
    if not as_json and issued.previous_until is not None:
        print_text(f"the secret before is valid until {timestamp(issued.previous_until)}")


@keys.command("revoke")
@ID
@command
def revoke(*, key_id: str, as_json: bool) -> None:
    """Revoke KEY for good: its next request is refused, its streams and sessions end."""
    with connect() as client:
        key = client.access.revoke_key(key_id)
    if as_json:
        print_json(key)
    else:
        print_table(table(COLUMNS, [_row(key)]))


def print_issued(issued: IssuedKeyPayload, *, as_json: bool) -> None:
    """Print a key with its secret: the secret alone on standard output's first line."""
    if as_json:
        print_json(issued)
        return
    click.echo(issued.secret)
    print_text(f"key {issued.name} ({issued.id}): {' '.join(issued.scopes)}", style="dim")
    print_text("Store it now: no command shows it again.", style="yellow")


def _row(key: KeyPayload) -> list[object]:
    owner = f" for {key.owner}" if key.owner is not None else ""
    return [
        key.id,
        key.name + owner,
        key.prefix,
        " ".join(key.scopes),
        f"{age(key.last_used_at)} ago" if key.last_used_at is not None else "never",
        _state(key),
    ]


def _state(key: KeyPayload) -> str:
    if key.revoked_at is not None:
        return "[red]revoked[/red]"
    if key.expires_at is None:
        return "valid"
    if key.expires_at <= datetime.now(UTC):
        return "[red]expired[/red]"
    return f"until {timestamp(key.expires_at)}"
