"""`clouds`, `orphans`: cloud exclusions, and clusters without an owner."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_table, print_text, table, timestamp
from hillclimb.protocol.payloads.clusters import OrphanPayload
from hillclimb.protocol.payloads.costs import CloudExclusionPayload


@main.command()
@click.option("--clear", "clear_id", metavar="ID", help="Delete this exclusion; `all` deletes all.")
@command
def clouds(*, clear_id: str | None, as_json: bool) -> None:
    """Show cloud exclusions: machines that failed recently and are tried last; --clear deletes."""
    with connect() as client:
        if clear_id == "all":
            for exclusion in client.cloud_exclusions().data:
                client.clear_cloud_exclusion(exclusion.id)
        elif clear_id is not None:
            client.clear_cloud_exclusion(clear_id)
        page = client.cloud_exclusions()
    if as_json:
        print_json(page)
        return
    print_exclusions(page.data)


def print_exclusions(exclusions: Sequence[CloudExclusionPayload]) -> None:
    """Print cloud exclusions."""
    if not exclusions:
        print_text("There are no cloud exclusions: no machines failed recently.")
        return
    rows = [
        (
            exclusion.id,
            exclusion.infra,
            exclusion.sku or "all",
            timestamp(exclusion.until),
            exclusion.reason,
        )
        for exclusion in exclusions
    ]
    columns = ["exclusion", "where", "machines", "tried last until", "reason|"]
    print_table(table(columns, rows), empty="no candidate is tried last now")


@main.command()
@click.option(
    "--terminate", "names", multiple=True, metavar="NAME", help="Terminate it now; repeatable."
)
@click.option("--terminate-all", "end_all", is_flag=True, help="Terminate all listed clusters.")
@command
def orphans(*, names: tuple[str, ...], end_all: bool, as_json: bool) -> None:
    """Show orphaned clusters: they have this service's tag but belong to no run.

    The cluster sweep terminates them at the time shown; without --terminate this command
    terminates nothing. The next one terminates a named cluster, within a minute, even if
    HILLCLIMB_REAP_DRY_RUN is set.
    """
    if end_all and names:
        raise click.UsageError("--terminate-all terminates all: leave --terminate out")
    with connect() as client:
        if end_all:
            names = tuple(orphan.name for orphan in client.orphans().data)
        for name in names:
            client.terminate_orphan(name)
        page = client.orphans()
    if as_json:
        print_json(page)
        return
    if not page.data:
        print_text("There are no orphaned clusters.")
        return
    rows = [(orphan.name, timestamp(orphan.first_seen_at), _end_of(orphan)) for orphan in page.data]
    print_table(table(["cluster", "first seen", "terminated"], rows))


def _end_of(orphan: OrphanPayload) -> str:
    if orphan.terminate_requested_at is not None:
        return f"at the next cluster sweep, requested by {orphan.terminate_requested_by}"
    if orphan.ends_at is None:
        return "never: HILLCLIMB_REAP_DRY_RUN is set"
    return f"after {timestamp(orphan.ends_at)}"
