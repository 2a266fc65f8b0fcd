"""`clusters`, `budget`, `limits`: what is rented, what it costs, what it may cost."""

from __future__ import annotations

import click

from hillclimb.cli.console import out, print_json, print_table, print_text, table
from hillclimb.cli.main import command, connect, main
from hillclimb.client import Json


@main.command()
@click.argument("run_id", metavar="RUN")
@command
def clusters(*, run_id: str, as_json: bool) -> None:
    """Show what was rented for RUN, what was tried to get it, and what it cost."""
    with connect() as client:
        found = client.clusters(run_id)
    if as_json:
        print_json(found)
        return
    if not found["data"]:
        print_text("No cluster was asked for.")
        return
    rows = [
        (each["name"], each["state"], _where(each), _price(each), _cost(each["spent"]))
        for each in found["data"]
    ]
    print_table(table(["cluster", "state", "where", "$/h>", "cost>"], rows))
    tried = [
        (offer["at"], _where(offer), _price(offer), offer["outcome"], offer["message"] or "")
        for each in found["data"]
        for offer in each["offers"]
    ]
    if tried:
        print_table(table(["tried", "where", "$/h>", "outcome", "why"], tried))
    for each in found["data"]:
        if each["message"]:
            print_text(f"{each['name']}: {each['message']}")
    out.print(f"together {_cost(found['spent'])}, {found['spent']['hours']:.2f} h")


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--add-usd", type=click.FloatRange(min=0), default=0.0, help="Give so much more.")
@click.option("--add-hours", type=click.FloatRange(min=0), default=0.0, help="Give so much more.")
@command
def budget(*, run_id: str, add_usd: float, add_hours: float, as_json: bool) -> None:
    """Show what RUN may cost and has cost; with --add-…, give it more."""
    with connect() as client:
        if add_usd or add_hours:
            found = client.extend_budget(run_id, usd=add_usd, hours=add_hours)
        else:
            found = client.budget(run_id)
    if as_json:
        print_json(found)
        return
    rows = [
        (
            each["owner"],
            _of(_cost(each["spent"]), each["usd"], "${:.2f}"),
            _of(f"{each['spent']['hours']:.2f}", each["hours"], "{:.2f}"),
            f"{each['share']:.0%}",
        )
        for each in found["data"]
    ]
    if rows:
        print_table(table(["budget of", "cost>", "hours>", "used>"], rows))
    else:
        print_text("Neither the run nor its project has a budget.")
    out.print(f"this run {_cost(found['spent'])}, {found['spent']['hours']:.2f} h")


@main.command()
@click.option("--usd", type=click.FloatRange(min=0), help="Most that all runs may cost together.")
@click.option("--hours", type=click.FloatRange(min=0), help="Longest that clusters may be up.")
@click.option("--max-clusters", type=click.IntRange(min=0), help="Clusters at once.")
@click.option("--clear", is_flag=True, help="Take the limits of money and time away.")
@command
def limits(
    *,
    usd: float | None,
    hours: float | None,
    max_clusters: int | None,
    clear: bool,
    as_json: bool,
) -> None:
    """Show, or set, what all runs of the project may use together.

    A limit of money or time that is set counts from now on.
    """
    given = {"usd": usd, "hours": hours, "max_clusters": max_clusters}
    changes = {name: value for name, value in given.items() if value is not None}
    if clear and (usd is not None or hours is not None):
        raise click.UsageError("--clear takes the limits away: leave --usd and --hours out")
    with connect() as client:
        found = client.limits()
        if changes or clear:
            kept = found | ({"usd": None, "hours": None} if clear else {}) | changes
            fresh = {"since": None} if clear or usd is not None or hours is not None else {}
            found = client.set_limits(kept | fresh)
    if as_json:
        print_json(found)
        return
    shown = {name: "no limit" if found[name] is None else found[name] for name in ("usd", "hours")}
    out.print(
        f"usd {shown['usd']}, hours {shown['hours']}, since {found['since'] or 'never'};"
        f" {found['max_clusters']} clusters at once"
    )


def _where(each: Json) -> str:
    return " ".join(part for part in (each["infra"], each["region"], each["sku"]) if part) or "–"


def _price(each: Json) -> str:
    return "–" if each["hourly_usd"] is None else f"{each['hourly_usd']:.2f}"


def _cost(spent: Json) -> str:
    return f"{'' if spent['is_complete'] else '≥ '}${spent['usd']:.2f}"


def _of(used: str, limit: float | None, form: str) -> str:
    return used if limit is None else f"{used} of {form.format(limit)}"
