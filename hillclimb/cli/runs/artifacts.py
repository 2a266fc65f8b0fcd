"""`logs`, `trajectories`: read logs and rollouts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.tokens import print_tokens
from hillclimb.cli.terminal.console import (
    err,
    print_json,
    print_log,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.results.logs import LogPayload
from hillclimb.protocol.payloads.results.rollouts import OutcomePayload, RolloutWithTrajectory

LEVELS = click.Choice(("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), case_sensitive=False)


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("-f", "--follow", is_flag=True, help="Keep printing until the run has ended.")
@click.option("--attempt", type=click.IntRange(1), help="Attempt; default: the newest.")
@click.option("--level", type=LEVELS, help="Only lines of this level or above.")
@click.option("--component", help="Only lines of this component: node, rollouts, trainer.engines.")
@click.option("--env", "environment", type=ENV_REFERENCE, help="Only lines about this environment.")
@click.option("--grep", "text", metavar="TEXT", help="Only lines with this text, in either case.")
@command
def logs(
    *, run_id: str, follow: bool, attempt: int | None, as_json: bool, **filters: str | None
) -> None:
    """Print the log of RUN: the lines of the trainer and of its node."""
    with connect() as client:
        pages = (
            client.follow_logs(run_id, attempt=attempt, filters=filters)
            if follow
            else _log_so_far(client, run_id, attempt, filters)
        )
        is_empty = True
        for page in pages:
            if as_json:
                print_json(page)
            else:
                is_empty = is_empty and not page.text
                print_log(page.text)
        if is_empty and not as_json:
            err.print(_why_empty(client, run_id, attempt, filters), markup=False, soft_wrap=True)


def _why_empty(
    client: Client, run_id: str, attempt: int | None, filters: Mapping[str, str | None]
) -> str:
    """Return why no line of a log was printed."""
    newest = client.run(run_id).attempt
    if attempt is not None and attempt > newest:
        return f"there is no attempt {attempt}: the newest is {newest}"
    if any(filters.values()):
        return f"no line fits: hillclimb logs {run_id} prints all of them"
    return "no lines yet: they come once a runner or machine has started the trainer"


def _log_so_far(
    client: Client, run_id: str, attempt: int | None, filters: Mapping[str, str | None]
) -> Iterator[LogPayload]:
    page, after = client.logs(run_id, attempt=attempt, filters=filters), 0
    yield page
    while page.next_offset > after:
        after = page.next_offset
        page = client.logs(run_id, attempt=attempt, after=after, filters=filters)
        if page.text:
            yield page


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--failed", is_flag=True, help="Only graded rollouts that did not pass.")
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@click.option("--step", type=int, help="Only this step.")
@click.option("--decoding", help="train, or the name of an eval decoding.")
@click.option("--pattern", help="Only rollouts that show this failure pattern.")
@limit_option(20)
@click.option("--show", "rollout_id", metavar="ROLLOUT", help="Print one rollout turn by turn.")
@click.option("--tokens", "by_token", is_flag=True, help="With --show: print its tokens.")
@click.option("--turn", type=click.IntRange(0), help="With --tokens: all of this turn; 0: prompt.")
@command
def trajectories(
    *,
    run_id: str,
    rollout_id: str | None,
    by_token: bool,
    turn: int | None,
    as_json: bool,
    **filters: Any,
) -> None:
    """List rollouts of RUN with their outcomes, or show one.

    With --tokens it prints where learner and engine disagree most about a token that was drawn, and
    figures of every turn; with --turn each token of that turn.
    """
    filters["failed"] = "true" if filters["failed"] else None
    if by_token and not rollout_id:
        raise click.UsageError("--tokens needs --show ROLLOUT")
    if turn is not None and not by_token:
        raise click.UsageError("--turn needs --tokens")
    with connect() as client:
        if rollout_id and by_token:
            print_tokens(client, run_id, rollout_id, turn, as_json=as_json)
            return
        if rollout_id:
            _print_trajectory(client.trajectory(run_id, rollout_id), as_json=as_json)
            return
        page = client.trajectories(run_id, **filters)
    if not page.data and not as_json:
        has_filters = any(each for name, each in filters.items() if name != "limit")
        every = f"no rollouts fit: hillclimb trajectories {run_id} lists all of them"
        none = "no rollouts yet: they come with the first evaluation or step"
        print_text(every if has_filters else none)
        return
    if as_json:
        print_json(page)
        return
    rows = [
        (
            row.rollout_id,
            row.status if row.score is None else f"{100 * row.score:.0f} %",
            row.stop_reason,
            row.num_turns,
        )
        for row in page.data
    ]
    print_table(table(["rollout", "score>", "stopped~", "turns>"], rows))
    causes = Counter(_cause(row) for row in page.data if row.score is None)
    for cause, number in causes.most_common():
        print_text(f"{number} without a grade: {cause}", style="dim")


def _print_trajectory(rollout: RolloutWithTrajectory, *, as_json: bool) -> None:
    if as_json:
        print_json(rollout)
        return
    task = rollout.trajectory.task
    variables = "  ".join(f"{name}={value}" for name, value in task.env_variables.items())
    print_text(f"{task.key}  {variables}", style="bold")
    print_text(f"task: {task.prompt}")
    for number, turn in enumerate(rollout.trajectory.turns, start=1):
        # Words, not colours alone, tell who speaks: a pipe has none.
        print_text(f"model {number}: {turn.response}", style="cyan")
        if turn.observation is not None:
            who, style = ("error", "red") if turn.is_error else ("tool", "dim")
            print_text(f"{who} {number}: {turn.observation}", style=style)
    print_text(f"{rollout.status}, score {rollout.score}: {_cause(rollout)}")


def _cause(rollout: OutcomePayload) -> str:
    """Return why a rollout has no grade or failed, with the cause in words if it is known."""
    code = rollout.reason or rollout.cause or rollout.stop_reason
    return f"{code}: {rollout.detail}" if rollout.detail else code
