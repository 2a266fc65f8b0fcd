"""`clouds`, `strays`: what was learnt of the clouds, and clusters that nobody owns."""

from __future__ import annotations

import click

from hillclimb.cli.console import print_json, print_table, print_text, table
from hillclimb.cli.main import command, connect, main
from hillclimb.client import Json


@main.command()
@click.option("--clear", "clear_id", metavar="ID", help="Forget this one; `all` forgets all.")
@command
def clouds(*, clear_id: str | None, as_json: bool) -> None:
    """Show machines that failed of late and are asked for last; with --clear, forget it."""
    with connect() as client:
        if clear_id == "all":
            for each in client.cloud_exclusions()["data"]:
                client.clear_cloud_exclusion(each["id"])
        elif clear_id is not None:
            client.clear_cloud_exclusion(clear_id)
        found = client.cloud_exclusions()
    if as_json:
        print_json(found)
        return
    print_exclusions(found["data"])


def print_exclusions(found: list[Json]) -> None:
    """Print what was learnt of the clouds."""
    if not found:
        print_text("Nothing is asked for last: no machines failed of late.")
        return
    rows = [
        (each["id"], each["infra"], each["sku"] or "all", each["until"], each["reason"])
        for each in found
    ]
    print_table(table(["learnt", "where", "machines", "asked for last until", "why"], rows))


@main.command()
@click.option("--end", "names", multiple=True, metavar="NAME", help="End it now; may be repeated.")
@click.option("--end-all", is_flag=True, help="End all that are listed.")
@command
def strays(*, names: tuple[str, ...], end_all: bool, as_json: bool) -> None:
    """Show clusters with this service's tag that no run has: what the reaper will end, and when.

    Without --end it ends nothing. What is named is ended at the next sweep, within a minute, also
    where the reaper only tells (HILLCLIMB_REAP_DRY_RUN).
    """
    if end_all and names:
        raise click.UsageError("--end-all ends all: leave --end out")
    with connect() as client:
        if end_all:
            names = tuple(each["name"] for each in client.strays()["data"])
        for name in names:
            client.end_stray(name)
        found = client.strays()
    if as_json:
        print_json(found)
        return
    if not found["data"]:
        print_text("No cluster is without an owner.")
        return
    rows = [(each["name"], each["met_at"], _ends(each)) for each in found["data"]]
    print_table(table(["cluster", "first met", "ended"], rows))


def _ends(stray: Json) -> str:
    if stray["end_asked_at"]:
        return f"at the next sweep, for {stray['end_asked_by']}"
    return f"after {stray['ends_at']}" if stray["ends_at"] else "never: the reaper runs dry"
