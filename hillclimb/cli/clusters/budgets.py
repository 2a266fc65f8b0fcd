"""`budget`, `limits`: the cost of runs, and limits of the cost."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import (
    duration,
    json_of,
    out,
    print_json,
    print_table,
    print_text,
    table,
    timestamp,
)
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.costs import AllowancePayload, OutlookPayload, SpentPayload


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option(
    "--add-usd", type=FiniteRange(min=0), default=0.0, help="Raise the limit by this many USD."
)
@click.option(
    "--add-hours", type=FiniteRange(min=0), default=0.0, help="Raise the limit by this many hours."
)
@command
def budget(*, run_id: str, add_usd: float, add_hours: float, as_json: bool) -> None:
    """Show the budget of RUN and its cost so far; --add-usd and --add-hours extend it."""
    with connect() as client:
        if add_usd or add_hours:
            budgets = client.extend_budget(run_id, usd=add_usd, hours=add_hours)
        else:
            budgets = client.budget(run_id)
    if as_json:
        print_json(budgets)
        return
    if budgets.data:
        print_allowances(budgets.data)
    else:
        print_text("Neither the run nor its project has a budget.")
    out.print(f"this run {cost(budgets.spent)}, {budgets.spent.hours:.2f} h")


def print_allowances(budgets: Sequence[AllowancePayload]) -> None:
    """Print budgets, and a remedy for those that are used up."""
    rows = [
        (
            budget.owner,
            _of(cost(budget.spent), budget.usd, "${:.2f}"),
            _of(f"{budget.spent.hours:.2f}", budget.hours, "{:.2f}"),
            f"{budget.share:.0%}",
        )
        for budget in budgets
    ]
    print_table(table(["budget of", "cost>", "hours>", "used>"], rows))
    for budget in budgets:
        if budget.is_used_up:
            verb = "hillclimb limits" if budget.owner == "project" else "hillclimb budget RUN"
            print_text(
                f"The budget of the {budget.owner} is used up, and its runs are paused. Raise it"
                f" with `{verb}`, then `hillclimb resume RUN`.",
                style="yellow",
            )


def print_outlook(forecast: OutlookPayload) -> None:
    """Print a run's cost so far, per hour, and estimated to its end."""
    rate = forecast.hourly_usd
    now = "at an unknown price" if rate is None else f"${rate:.2f} an hour now"
    left = ""
    if forecast.left_usd is not None and forecast.whole_usd is not None:
        left = (
            f"; {duration(forecast.eta_s)} left, about ${forecast.left_usd:.2f} more,"
            f" ${forecast.whole_usd:.2f} in total"
        )
    spent = forecast.spent
    print_text(f"cost {cost(spent)}, {spent.hours:.2f} h, {now}{left}")


@main.command()
@click.option(
    "--usd", type=FiniteRange(min=0), help="Limit of the cost of all runs together (USD)."
)
@click.option("--hours", type=FiniteRange(min=0), help="Limit of the running time of all clusters.")
@click.option("--max-clusters", type=click.IntRange(min=0), help="Limit of concurrent clusters.")
@click.option("--clear", is_flag=True, help="Remove the limits of cost and time.")
@click.option("--from-now", is_flag=True, help="Reset what counts as spent to 0.")
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
    """Show, or set, the limits of all runs of the project together.

    Spending counts from the time when the first limit was set, or from the last --from-now.
    """
    options = {"usd": usd, "hours": hours, "max_clusters": max_clusters}
    changes = {name: value for name, value in options.items() if value is not None}
    if clear and (usd is not None or hours is not None):
        raise click.UsageError("--clear removes the limits: leave --usd and --hours out")
    with connect() as client:
        current = client.limits()
        if changes or clear or from_now:
            cleared = {"usd": None, "hours": None} if clear else {}
            fresh = {"since": None} if from_now else {}
            current = client.set_limits({**json_of(current), **cleared, **changes, **fresh})
    if as_json:
        print_json(current)
        return
    since = "never" if current.since is None else timestamp(current.since)
    out.print(
        f"usd {_limit(current.usd)}, hours {_limit(current.hours)}, since {since};"
        f" {current.max_clusters} clusters at once"
    )


def _limit(limit: float | None) -> str:
    return "no limit" if limit is None else str(limit)


def cost(spent: SpentPayload) -> str:
    """Return the cost as text, marked if it is a lower bound."""
    return f"{'' if spent.is_complete else '≥ '}${spent.usd:.2f}"


def _of(used: str, limit: float | None, form: str) -> str:
    return used if limit is None else f"{used} of {form.format(limit)}"
