"""`clusters`: rented clusters and their cost."""

from __future__ import annotations

from collections.abc import Iterable

import click

from hillclimb.cli.clusters.budgets import cost, print_allowances
from hillclimb.cli.clusters.clouds import print_exclusions
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
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.clusters import (
    ClusterFacts,
    ClusterList,
    MachinePayload,
    ProjectClusters,
)


@main.command()
@click.argument("run_id", metavar="[RUN]", type=RUN_REFERENCE, required=False)
@command
def clusters(*, run_id: str | None, as_json: bool) -> None:
    """Show the clusters of RUN, the offers that were tried, and their cost.

    Without RUN: the clusters that the project rents now, and the project's cost so far.
    """
    with connect() as client:
        if run_id is None:
            _show_project(client, as_json=as_json)
        else:
            _show_run(client, run_id, as_json=as_json)


def _show_project(client: Client, *, as_json: bool) -> None:
    page = client.project_clusters()
    if as_json:
        print_json(page)
    else:
        _print_project(page)


def _show_run(client: Client, run_id: str, *, as_json: bool) -> None:
    page = client.clusters(run_id)
    if as_json:
        print_json(page)
    else:
        _print_of_run(page)


def _print_project(page: ProjectClusters) -> None:
    rows = [
        (
            cluster.run_id,
            cluster.run_name,
            cluster.state,
            _where(cluster),
            _price(cluster),
            None if cluster.running_at is None else timestamp(cluster.running_at),
            cost(cluster.spent),
        )
        for cluster in page.data
    ]
    if rows:
        columns = ["run", "name", "cluster is", "where", "$/h>", "up since", "cost>"]
        print_table(table(columns, rows))
    else:
        print_text("No cluster is rented now.")
    _print_messages(page.data)
    rate = page.hourly_usd
    now = "an unknown sum" if rate is None else f"${rate:.2f}"
    out.print(
        f"{len(rows)} of {page.max_clusters} clusters, {now} an hour;"
        f" all runs so far {cost(page.spent)}, {page.spent.hours:.2f} h"
    )
    if page.warning:
        print_text(page.warning, style="yellow")
    if page.budget is not None:
        print_allowances([page.budget])
    if page.exclusions:
        print_exclusions(page.exclusions)


def _print_messages(clusters: Iterable[ClusterFacts]) -> None:
    """Print the clusters' messages: reasons for termination or waiting."""
    for cluster in clusters:
        if cluster.message:
            print_text(f"{cluster.name}: {cluster.message}")


def _print_of_run(page: ClusterList) -> None:
    if not page.data:
        print_text("No cluster was requested.")
        return
    rows = [
        (cluster.name, cluster.state, _where(cluster), _price(cluster), cost(cluster.spent))
        for cluster in page.data
    ]
    print_table(table(["cluster", "state", "where", "$/h>", "cost>"], rows))
    offers = [
        (
            timestamp(offer.at),
            _where(offer),
            _price(offer),
            "–" if offer.seconds is None else f"{offer.seconds:.0f}",
            offer.outcome,
            ": ".join(part for part in (offer.error_class, offer.message) if part),
        )
        for cluster in page.data
        for offer in cluster.offers
    ]
    if offers:
        print_table(table(["tried", "where", "$/h>", "s>", "outcome", "reason"], offers))
    _print_messages(page.data)
    out.print(f"total {cost(page.spent)}, {page.spent.hours:.2f} h")


def _where(machine: MachinePayload) -> str:
    """Return cloud, region and machine."""
    return " ".join(filter(None, (machine.infra, machine.region, machine.sku))) or "–"


def _price(machine: MachinePayload) -> str:
    return "–" if machine.hourly_usd is None else f"{machine.hourly_usd:.2f}"
