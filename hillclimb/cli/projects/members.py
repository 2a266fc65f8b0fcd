"""`members`: people and their roles in the project."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_table, print_text, table, timestamp
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.protocol.payloads.projects.access import MemberPayload

COLUMNS = ("address", "name", "role", "added by", "last sign-in")
ROLES = click.Choice(["viewer", "member", "admin"])
ADDRESS = click.argument("address")


@main.group()
def members() -> None:
    """List, add and remove the members of the project."""


@members.command("list")
@limit_option(50)
@click.option("--after", metavar="ADDRESS", help="Only members behind this address.")
@command
def list_members(*, limit: int, after: str | None, as_json: bool) -> None:
    """List members by address."""
    with connect() as client:
        page = client.access.members(after=after, limit=limit)
    if as_json:
        print_json(page)
        return
    empty = "no members: hillclimb members set ADDRESS --role viewer adds one"
    print_table(table(COLUMNS, [_row(member) for member in page.data]), empty=empty)
    if page.has_more:
        print_text(f"more: hillclimb members list --after {page.data[-1].email}", style="dim")


@members.command("set")
@ADDRESS
@click.option("--role", type=ROLES, required=True, help="What the person may do.")
@command
def set_member(*, address: str, role: str, as_json: bool) -> None:
    """Invite the person of ADDRESS, or change the role; it holds from the next request on.

    The person joins when they sign in and accept.
    """
    with connect() as client:
        member = client.access.set_member(address, role)
    if as_json:
        print_json(member)
    else:
        print_table(table(COLUMNS, [_row(member)]))


@members.command("remove")
@ADDRESS
@command
def remove(*, address: str, as_json: bool) -> None:
    """Remove the person of ADDRESS; their keys and sessions in the project end."""
    with connect() as client:
        client.access.remove_member(address)
    if not as_json:
        print_text(f"{address} is no member any more.")


def _row(member: MemberPayload) -> list[object]:
    last, is_in = member.last_login_at, member.accepted_at is not None
    return [
        member.email,
        (member.name or "–").replace("[", r"\["),
        member.role,
        member.added_by,
        timestamp(last) if last is not None else "never" if is_in else "invited",
    ]
