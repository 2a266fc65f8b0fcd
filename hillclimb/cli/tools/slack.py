"""`slack`: link Slack users to API keys, and look at messages of runs."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import print_json, print_table, print_text, table, timestamp
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE


@main.group()
def slack() -> None:
    """Link Slack users, who then use `/hillclimb` as the owner of an API key; see messages."""


@slack.command()
@command
def link(*, as_json: bool) -> None:
    """Print a one-time code that links one Slack user to your API key."""
    with connect() as client:
        code = client.slack.create_code()
    if as_json:
        print_json(code)
        return
    print_text(f"Send this in Slack within {code.expires_in_s // 60} minutes:")
    print_text(f"  {code.command}")
    print_text("Whoever sends it first acts with your key, so do not post it.", style="dim")


@slack.command()
@command
def links(*, as_json: bool) -> None:
    """List the linked Slack users of the project."""
    with connect() as client:
        page = client.slack.list()
    if as_json:
        print_json(page)
        return
    rows = [
        (each.team_id, each.user_id, each.key_id, timestamp(each.created_at)) for each in page.data
    ]
    empty = "nobody is linked: hillclimb slack link prints a code"
    print_table(table(("workspace", "user", "key", "since"), rows), empty=empty)


@slack.command()
@click.argument("team_id", metavar="WORKSPACE")
@click.argument("user_id", metavar="USER")
@command
def unlink(*, team_id: str, user_id: str, as_json: bool) -> None:
    """End the link of USER of WORKSPACE, as `links` lists them."""
    with connect() as client:
        others = client.slack.unlink(team_id, user_id)
    if as_json:
        print_json(others)
    else:
        print_text(f"{user_id} of {team_id} is no longer linked")


@slack.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--before", type=click.IntRange(min=1), metavar="MESSAGE", help="Older ones.")
@click.option(
    "--limit", type=click.IntRange(1, 200), default=20, show_default=True, help="Most of them."
)
@command
def messages(*, run_id: str, before: int | None, limit: int, as_json: bool) -> None:
    """List the messages of RUN, newest first, and why one was not delivered."""
    with connect() as client:
        page = client.slack.messages(run_id, before=before, limit=limit)
    if as_json:
        print_json(page)
        return
    if not page.data:
        print_text("no messages: notify.slack.channel of the spec names where a run posts")
        return
    rows = [
        (each.id, each.about, each.channel, each.state, each.num_attempts, each.error or "–")
        for each in page.data
    ]
    print_table(table(["id>", "about", "channel~", "state", "tries>", "result|"], rows))
    if page.has_more:
        print_text(f"more: hillclimb slack messages {run_id} --before {page.data[-1].id}")
