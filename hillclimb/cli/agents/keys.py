"""`agent-key`: keys for coding agents, whose grants limit the runs that they create."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import minute, print_json, print_table, print_text, table
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.protocol.payloads.projects.service import AgentKeyPayload, GrantPayload

KEY = click.argument("key_id", metavar="KEY_ID")
RUNS = click.IntRange(0, 10_000)
AMOUNT = FiniteRange(0, 1e9)


@main.group("agent-key")
def agent_key() -> None:
    """Create keys for coding agents; the service refuses what a key's grant does not cover."""


@agent_key.command("create")
@click.argument("name", metavar="NAME")
@click.option("--runs", "num_runs", type=RUNS, required=True, help="Runs that it may create.")
@click.option("--usd", type=AMOUNT, default=0.0, help="Dollars it may add to budgets of runs.")
@click.option("--hours", type=AMOUNT, default=0.0, help="Hours it may add to budgets of runs.")
@command
def create(*, name: str, num_runs: int, usd: float, hours: float, as_json: bool) -> None:
    """Create a key that reads and writes runs; it is shown this once."""
    with connect() as client:
        made = client.agent_keys.create(name, num_runs=num_runs, extra_usd=usd, extra_hours=hours)
    if as_json:
        print_json(made)
        return
    print_text(f"{made.id}  {_described(made.grant)}")
    print_text(made.key)
    print_text("This key is shown once. The agent needs it as HILLCLIMB_API_KEY.", style="dim")


@agent_key.command("list")
@limit_option(50)
@command
def list_keys(*, limit: int, as_json: bool) -> None:
    """List agent keys with what they used, newest first."""
    with connect() as client:
        page = client.agent_keys.list(limit=limit)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each.id,
            each.name[:20],
            f"{each.grant.num_runs_used}/{each.grant.num_runs}",
            "revoked" if each.revoked_at else minute(each.created_at),
        )
        for each in page.data
    ]
    empty = "no agent keys: hillclimb agent-key create NAME --runs 5 creates one"
    print_table(table(("key", "name", "runs>", "created"), rows), empty=empty)


@agent_key.command("show")
@command
def show(*, as_json: bool) -> None:
    """Show the grant of the key that this command uses."""
    with connect() as client:
        _print(client.agent_keys.own(), as_json=as_json)


@agent_key.command("set")
@KEY
@click.option("--runs", "num_runs", type=RUNS, help="Runs that it may create.")
@click.option("--usd", type=AMOUNT, help="Dollars it may add to budgets of runs.")
@click.option("--hours", type=AMOUNT, help="Hours it may add to budgets of runs.")
@command
def set_grant(
    *, key_id: str, num_runs: int | None, usd: float | None, hours: float | None, as_json: bool
) -> None:
    """Replace amounts of a grant; what was used stays used."""
    with connect() as client:
        changed = client.agent_keys.change(
            key_id, num_runs=num_runs, extra_usd=usd, extra_hours=hours
        )
        _print(changed, as_json=as_json)


@agent_key.command("revoke")
@KEY
@command
def revoke(*, key_id: str, as_json: bool) -> None:
    """Make a key invalid; its runs go on."""
    with connect() as client:
        _print(client.agent_keys.revoke(key_id), as_json=as_json)


def _print(payload: AgentKeyPayload, *, as_json: bool) -> None:
    if as_json:
        print_json(payload)
        return
    state = "revoked" if payload.revoked_at else _described(payload.grant)
    print_text(f"{payload.id}  {payload.name}  {state}")


def _described(grant: GrantPayload) -> str:
    return (
        f"runs {grant.num_runs_used}/{grant.num_runs},"
        f" extensions ${grant.extra_usd_used:g}/{grant.extra_usd:g}"
        f" and {grant.extra_hours_used:g}/{grant.extra_hours:g} h"
    )
