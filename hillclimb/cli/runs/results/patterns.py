"""`patterns`: how rollouts fail, before and after."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import p_value_text
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.results.patterns import PatternPayload

COLUMNS = ("pattern", "severity", "before %>", "after %>", "p>", "status")
STYLES = {"fixed": "green", "improved": "green", "worse": "red", "needs_analysis": "yellow"}


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--before", type=click.IntRange(min=0), metavar="STEP", help="Default: the first.")
@click.option("--after", type=click.IntRange(min=0), metavar="STEP", help="Default: the last.")
@click.option("--decoding", help="Default: the one with the highest temperature.")
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@click.option(
    "--detectors", type=click.IntRange(min=0), metavar="VERSION",
    help="Version of the detectors; default: the newest that searched all rollouts.",
)  # fmt: skip
@command
def patterns(  # noqa: PLR0913 (one per option)
    *,
    run_id: str,
    before: int | None,
    after: int | None,
    decoding: str | None,
    env: str | None,
    detectors: int | None,
    as_json: bool,
) -> None:
    """Show how often rollouts of RUN show each failure pattern in two evaluations.

    Shares are of rollouts, averaged over tasks; p is exact and paired over tasks. The exemplars are
    rollouts to look at with `hillclimb trajectories`.
    """
    with connect() as client:
        report = client.patterns(
            run_id, before=before, after=after, decoding=decoding, env=env, version=detectors
        )
    if as_json:
        print_json(report)
        return
    place = f"{report.decoding}, steps {report.before_step} and {report.after_step}"
    numbers = f"{report.num_searched_before} and {report.num_searched_after} rollouts"
    by = "" if report.version is None else f", by version {report.version} of the detectors"
    out.print(f"[bold]failure patterns[/bold], {place}: {numbers}{by}", soft_wrap=True)
    rows = [each for each in report.data if each.num_before or each.num_after]
    if not rows:
        print_text("no rollout shows any")
        return
    print_table(table(COLUMNS, [_row(each) for each in rows]))
    for each in rows:
        if each.exemplars:
            print_text(f"{each.name}: {each.exemplars[0]}", style="dim")


def _row(pattern: PatternPayload) -> list[object]:
    style = STYLES.get(pattern.status)
    status = pattern.status.upper().replace("_", " ")
    return [
        pattern.name,
        pattern.severity.upper(),
        "–" if pattern.before is None else f"{100 * pattern.before:.1f}",
        "–" if pattern.after is None else f"{100 * pattern.after:.1f}",
        p_value_text(pattern.p_value),
        f"[{style}]{status}[/{style}]" if style else status,
    ]
