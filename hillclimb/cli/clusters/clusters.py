"""`clusters`, `budget`, `limits`: what is rented, what it costs, what it may cost."""

from __future__ import annotations

import click

from hillclimb.cli.clouds import print_exclusions
from hillclimb.cli.console import duration, out, print_json, print_table, print_text, table
from hillclimb.cli.finite import FiniteRange
from hillclimb.cli.main import command, connect, main
from hillclimb.client import Json


@main.command()
@click.argument("run_id", metavar="[RUN]", required=False)
@command
def clusters(*, run_id: str | None, as_json: bool) -> None:
    """Show what was rented for RUN, what was tried to get it, and what it cost.

    Without RUN: all that the project rents now, and what it has cost.
    """
    with connect() as client:
        found = client.project_clusters() if run_id is None else client.clusters(run_id)
    if as_json:
        print_json(found)
    elif run_id is None:
        _print_project(found)
    else:
        _print_of_run(found)


def _print_project(found: Json) -> None:
    rows = [
        (
            each["run_id"],
            each["run_name"],
            each["state"],
            where(each),
            _price(each),
            each["up_at"],
            cost(each["spent"]),
        )
        for each in found["data"]
    ]
    if rows:
        columns = ["run", "name", "cluster is", "where", "$/h>", "up since", "cost>"]
        print_table(table(columns, rows))
    else:
        print_text("Nothing is rented now.")
    _print_messages(found)
    rate = found["hourly_usd"]
    now = "an unknown sum" if rate is None else f"${rate:.2f}"
    out.print(
        f"{len(rows)} of {found['max_clusters']} clusters, {now} an hour;"
        f" all runs so far {cost(found['spent'])}, {found['spent']['hours']:.2f} h"
    )
    if found["warning"]:
        print_text(found["warning"], style="yellow")
    if found["budget"]:
        print_allowances([found["budget"]])
    if found["exclusions"]:
        print_exclusions(found["exclusions"])


def _print_messages(found: Json) -> None:
    """Print why clusters end, and what they wait for."""
    for each in found["data"]:
        if each["message"]:
            print_text(f"{each['name']}: {each['message']}")


def _print_of_run(found: Json) -> None:
    if not found["data"]:
        print_text("No cluster was asked for.")
        return
    rows = [
        (each["name"], each["state"], where(each), _price(each), cost(each["spent"]))
        for each in found["data"]
    ]
    print_table(table(["cluster", "state", "where", "$/h>", "cost>"], rows))
    tried = [
        (
            offer["at"],
            where(offer),
            _price(offer),
            "–" if offer["seconds"] is None else f"{offer['seconds']:.0f}",
            offer["outcome"],
            ": ".join(part for part in (offer["error_class"], offer["message"]) if part),
        )
        for each in found["data"]
        for offer in each["offers"]
    ]
    if tried:
        print_table(table(["tried", "where", "$/h>", "s>", "outcome", "why"], tried))
    _print_messages(found)
    out.print(f"together {cost(found['spent'])}, {found['spent']['hours']:.2f} h")


@main.command()
@click.argument("run_id", metavar="RUN")
@click.option("--add-usd", type=FiniteRange(min=0), default=0.0, help="Give so much more.")
@click.option("--add-hours", type=FiniteRange(min=0), default=0.0, help="Give so much more.")
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
    if found["data"]:
        print_allowances(found["data"])
    else:
        print_text("Neither the run nor its project has a budget.")
    out.print(f"this run {cost(found['spent'])}, {found['spent']['hours']:.2f} h")


def print_allowances(found: list[Json]) -> None:
    """Print budgets, and what to do about those that are used up."""
    rows = [
        (
            each["owner"],
            _of(cost(each["spent"]), each["usd"], "${:.2f}"),
            _of(f"{each['spent']['hours']:.2f}", each["hours"], "{:.2f}"),
            f"{each['share']:.0%}",
        )
        for each in found
    ]
    print_table(table(["budget of", "cost>", "hours>", "used>"], rows))
    for each in found:
        if each["is_used_up"]:
            verb = "hillclimb limits" if each["owner"] == "project" else "hillclimb budget RUN"
            print_text(
                f"The budget of the {each['owner']} is used up, and what it pays for rests. Give"
                f" more with `{verb}`, then `hillclimb resume RUN`.",
                style="yellow",
            )


def print_outlook(found: Json) -> None:
    """Print what a run costs: so far, an hour, to its end."""
    rate = found["hourly_usd"]
    now = "at an unknown price" if rate is None else f"${rate:.2f} an hour now"
    left = ""
    if found["left_usd"] is not None:
        left = (
            f"; {duration(found['eta_s'])} left, about ${found['left_usd']:.2f} more,"
            f" ${found['whole_usd']:.2f} in all"
        )
    print_text(f"cost {cost(found['spent'])}, {found['spent']['hours']:.2f} h, {now}{left}")


@main.command()
@click.option("--usd", type=FiniteRange(min=0), help="Most that all runs may cost together.")
@click.option("--hours", type=FiniteRange(min=0), help="Longest that clusters may be up.")
@click.option("--max-clusters", type=click.IntRange(min=0), help="Clusters at once.")
@click.option("--clear", is_flag=True, help="Take the limits of money and time away.")
@click.option("--from-now", is_flag=True, help="What was spent until now does not count any more.")
@command
def limits(
    *,
    usd: float | None,
    hours: float | None,
    max_clusters: int | None,
    clear: bool,
    from_now: bool,
    as_json: bool,
) -> None:
    """Show, or set, what all runs of the project may use together.

    Limits count from when the first was set, or from the last --from-now.
    """
    given = {"usd": usd, "hours": hours, "max_clusters": max_clusters}
    changes = {name: value for name, value in given.items() if value is not None}
    if clear and (usd is not None or hours is not None):
        raise click.UsageError("--clear takes the limits away: leave --usd and --hours out")
    with connect() as client:
        found = client.limits()
        if changes or clear or from_now:
            kept = found | ({"usd": None, "hours": None} if clear else {}) | changes
            fresh = {"since": None} if from_now else {}
            found = client.set_limits(kept | fresh)
    if as_json:
        print_json(found)
        return
    shown = {name: "no limit" if found[name] is None else found[name] for name in ("usd", "hours")}
    out.print(
        f"usd {shown['usd']}, hours {shown['hours']}, since {found['since'] or 'never'};"
        f" {found['max_clusters']} clusters at once"
    )


def where(each: Json) -> str:
    """Return cloud, region and machine."""
    return " ".join(part for part in (each["infra"], each["region"], each["sku"]) if part) or "–"


def _price(each: Json) -> str:
    return "–" if each["hourly_usd"] is None else f"{each['hourly_usd']:.2f}"


def cost(spent: Json) -> str:
    """Return what was spent, marked where it is a lower bound."""
    return f"{'' if spent['is_complete'] else '≥ '}${spent['usd']:.2f}"


def _of(used: str, limit: float | None, form: str) -> str:
    return used if limit is None else f"{used} of {form.format(limit)}"
