"""`projects`, `quotas`: projects, for the operator, and the quotas of one's own."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.projects.keys import print_issued
from hillclimb.cli.terminal.console import print_json, print_table, print_text, table, timestamp
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.protocol.payloads.projects.access import QuotasPayload

QUOTA = click.IntRange(min=0)


@main.group()
def projects() -> None:
    """Create, list and delete projects, and set their quotas, as the operator."""


@projects.command("create")
@click.argument("name")
@command
def create(*, name: str, as_json: bool) -> None:
    """Create a project named NAME and print the secret of its admin's key."""
    with connect() as client:
        project = client.access.create_project(name)
    if as_json:
        print_json(project)
        return
    print_issued(project.key, as_json=False)
    print_text(f"project {project.name} ({project.id})")


@projects.command("list")
@limit_option(50)
@click.option("--after", metavar="PROJECT", help="Only projects behind this id.")
@command
def list_projects(*, limit: int, after: str | None, as_json: bool) -> None:
    """List projects: all of them for the operator, else one's own."""
    with connect() as client:
        page = client.access.projects(after=after, limit=limit)
    if as_json:
        print_json(page)
        return
    rows = [(each.name, each.id, timestamp(each.created_at)) for each in page.data]
    print_table(table(("name", "id", "created"), rows))
    if page.has_more:
        print_text(f"more: hillclimb projects list --after {page.data[-1].id}", style="dim")


@projects.command("delete")
@click.argument("project_id", metavar="PROJECT")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@command
def delete(*, project_id: str, yes: bool, as_json: bool) -> None:
    """Delete PROJECT (its id) with its runs, datasets, secrets, keys and members, for good.

    Refused while one of its runs or clusters has not ended. Its audit log stays.
    """
    if not yes:
        click.confirm(f"Delete project {project_id} with everything in it?", abort=True, err=True)
    with connect() as client:
        deleted = client.access.delete_project(project_id)
    if as_json:
        print_json(deleted)
    else:
        print_text(
            f"project {deleted.name} ({deleted.id}) is deleted; its files go in the background"
        )


@projects.command("quotas")
@click.argument("project_id", metavar="PROJECT")
@click.option("--queued-runs", type=QUOTA, help="Most runs that wait.")
@click.option("--running-runs", type=QUOTA, help="Most runs at work.")
@click.option("--submissions-per-hour", type=QUOTA, help="Most new runs in an hour.")
@click.option("--dataset-bytes", type=QUOTA, help="Most bytes of all its datasets.")
@command
def set_quotas(*, project_id: str, as_json: bool, **quotas: int | None) -> None:
    """Replace the quotas of PROJECT; one that is left out becomes the default."""
    with connect() as client:
        print_quotas(client.access.set_quotas(project_id, quotas), as_json=as_json)


@main.command()
@command
def quotas(*, as_json: bool) -> None:
    """Show the quotas of the project and their use."""
    with connect() as client:
        print_quotas(client.access.quotas(), as_json=as_json)


def print_quotas(payload: QuotasPayload, *, as_json: bool) -> None:
    """Print quotas as a table."""
    if as_json:
        print_json(payload)
        return
    rows = [
        (each.name, f"{each.used:,}", f"{each.limit:,}", "default" if each.is_default else "set")
        for each in payload.data
    ]
    print_table(table(("quota", "used>", "limit>", "by"), rows))
