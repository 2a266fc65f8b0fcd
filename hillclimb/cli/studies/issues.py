"""`issue`: the project's ledger of issues, measured before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import p_value_text, rate_with_interval
from hillclimb.cli.terminal.console import (
    print_json,
    print_page,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.paging import limit_option
from hillclimb.cli.terminal.run_reference import RUN_AT_STEP
from hillclimb.protocol.payloads.studies.issues import IssuePayload, SymptomRate
from hillclimb.stats.trajectories.patterns.pattern import Severity
from hillclimb.stats.trajectories.symptoms import FAILURE, SYMPTOMS

COLUMNS = ("issue>", "title", "severity", "symptom", "before %>", "after %>", "p>", "status", "id")
STYLES = {"fixed": "green", "improved": "green", "worse": "red", "needs_analysis": "yellow"}
SEVERITIES = click.Choice([severity.value for severity in Severity])
ALL = "all"
"""Value of --env for all environments."""
ID = click.argument("issue_id", metavar="ISSUE")

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


@main.group()
def issue() -> None:
    """Keep the ledger of issues: symptoms with their shares before and after, and status."""


def filters(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with the filters of lists."""
    for option in (
        click.option("--env", help="Only issues of this environment."),
        click.option("--severity", type=SEVERITIES, help="Only issues this severe."),
        click.option(
            "--state", type=click.Choice(["open", "closed", "all"]), default="all",
            show_default=True, help="Only issues that are open, or closed.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def words(*, is_new: bool) -> Decorator:
    """Return a decorator with the options that say what an issue is."""
    options = (
        click.option("--severity", type=SEVERITIES, required=is_new, help="How bad it is."),
        click.option(
            "--baseline", metavar="RUN@STEP", type=RUN_AT_STEP, required=is_new,
            help="The evaluation before.",
        ),
        click.option("--after", metavar="RUN@STEP", type=RUN_AT_STEP, help="The evaluation after."),
        click.option(
            "--symptom", type=click.Choice(list(SYMPTOMS)), metavar="NAME",
            default=FAILURE if is_new else None, show_default=is_new,
            help="A failure pattern, or a symptom of outcomes (docs/issues.md).",
        ),
        click.option("--env", help="Only this environment." if is_new else f"Or {ALL!r}."),
        click.option("--decoding", help="Default: the first that both evaluations have."),
        click.option("--description", help="What happens."),
        click.option("--impact", help="What it costs."),
    )  # fmt: skip

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@issue.command("create")
@click.argument("title")
@words(is_new=True)
@click.option("--idempotency-key", metavar="KEY", help="Repetitions with this key create only one.")
@command
def create(
    *, title: str, env: str | None, idempotency_key: str | None, as_json: bool, **body: Any
) -> None:
    """Create an issue named TITLE. Its figures are computed: none is typed."""
    fields = {"title": title, "env_key": env, **body}
    sent = {name: value for name, value in fields.items() if value is not None}
    with connect() as client:
        _print_issue(client.issues.create(sent, idempotency_key=idempotency_key), as_json=as_json)


@issue.command("list")
@filters
@limit_option(20, most=100)
@click.option("--before", metavar="ISSUE", help="Only older ones than this.")
@command
def list_issues(
    *,
    state: str,
    severity: str | None,
    env: str | None,
    limit: int,
    before: str | None,
    as_json: bool,
) -> None:
    """List issues, newest first."""
    with connect() as client:
        page = client.issues.list(
            state=state, severity=severity, env=env, before=before, limit=limit
        )
    if as_json:
        print_json(page)
        return
    empty = "no issues fit: hillclimb issue create notes one"
    print_table(table(COLUMNS, [_row(each) for each in page.data]), empty=empty)
    if page.has_more:
        print_text(f"more: hillclimb issue list --before {page.data[-1].id}", style="dim")


@issue.command("show")
@ID
@command
def show(*, issue_id: str, as_json: bool) -> None:
    """Show ISSUE with its shares before and after, the test and the status."""
    with connect() as client:
        _print_issue(client.issues.get(issue_id), as_json=as_json)


@issue.command("change")
@ID
@click.option("--title", help="Another title.")
@words(is_new=False)
@command
def change(*, issue_id: str, env: str | None, as_json: bool, **body: Any) -> None:
    """Change what ISSUE says, such as the evaluation after."""
    changes = {name: value for name, value in body.items() if value is not None}
    if env is not None:
        changes["env_key"] = None if env == ALL else env
    if not changes:
        raise click.UsageError("name what to change, such as --after RUN@STEP")
    with connect() as client:
        _print_issue(client.issues.change(issue_id, changes), as_json=as_json)


@issue.command("close")
@ID
@click.option("--resolution", default="", help="What ended it.")
@command
def close(*, issue_id: str, resolution: str, as_json: bool) -> None:
    """Close ISSUE; its status stays computed."""
    with connect() as client:
        _print_issue(client.issues.close(issue_id, resolution=resolution), as_json=as_json)


@issue.command("ledger")
@filters
@command
def ledger(*, state: str, severity: str | None, env: str | None, as_json: bool) -> None:
    """Print the newest 200 issues as Markdown tables, for an experiment log."""
    with connect() as client:
        payload = client.issues.ledger(state=state, severity=severity, env=env)
    if as_json:
        print_json(payload)
    else:
        print_page(payload.markdown.removesuffix("\n"))


def _print_issue(payload: IssuePayload, *, as_json: bool) -> None:
    if as_json:
        print_json(payload)
        return
    print_table(table(COLUMNS, [_row(payload)]))
    measured = payload.measured
    print_text(f"{payload.symptom}: {payload.definition}", style="dim")
    for label, text in (("", payload.description), ("impact: ", payload.impact)):
        if text:
            print_text(f"{label}{text}")
    if measured.why is not None:
        print_text(measured.why, style="yellow")
    test = {True: f"paired over {measured.num_paired} tasks", False: "Fisher's, on other tasks"}
    detectors = "" if measured.detectors is None else f", detectors of version {measured.detectors}"
    if measured.is_paired is not None:
        print_text(f"rule {measured.rule}, test {test[measured.is_paired]}{detectors}", style="dim")
    if payload.closed_at is not None:
        print_text(f"closed by {payload.closed_by}: {payload.resolution or 'no reason named'}")


def _row(payload: IssuePayload) -> list[object]:
    measured = payload.measured
    style = STYLES.get(measured.status)
    status = measured.status.upper().replace("_", " ")
    where = f" in {payload.env_key}" if payload.env_key is not None else ""
    return [
        payload.number,
        payload.title,
        payload.severity.upper(),
        f"{payload.symptom}{where}",
        _share(measured.before),
        _share(measured.after),
        p_value_text(measured.p_value),
        f"[{style}]{status}[/{style}]" if style else status,
        payload.id,
    ]


def _share(rate: SymptomRate | None) -> str:
    return "–" if rate is None else rate_with_interval(rate.value, (rate.low, rate.high))
