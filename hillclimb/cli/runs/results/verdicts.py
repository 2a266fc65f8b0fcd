"""`verdicts`: compare two evaluations of a run, task by task."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.results.report import by_option, print_report
from hillclimb.cli.runs.results.scoring import print_scoring, threshold_option, verifier_option
from hillclimb.cli.terminal.console import print_json
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--before", type=click.IntRange(min=0), help="Step of the earlier evaluation.")
@click.option("--after", type=click.IntRange(min=0), help="Step of the later evaluation.")
@click.option(
    "--rule", type=click.Choice(["v1", "v2"]), default="v2", show_default=True,
    help="Version of the rule; v1 corrects neither looks nor choices.",
)  # fmt: skip
@click.option(
    "-k", "k", type=click.IntRange(1, 256), default=1, show_default=True, help="Of pass@k."
)
@by_option
@threshold_option
@verifier_option
@command
def verdicts(  # noqa: PLR0913 (one per option)
    *,
    run_id: str,
    before: int | None,
    after: int | None,
    rule: str,
    k: int,
    by: str,
    threshold: float | None,
    verifier: str | None,
    as_json: bool,
) -> None:
    """Compare two evaluations of RUN, by default the first and the last.

    A step other than the last planned one may have been chosen by its figures: its p-values are
    multiplied by the number of evaluations that the schedule plans. Where tasks were sampled n
    times, pass@n stands beside pass@1, as an estimate.
    """
    with connect() as client:
        report = client.report(
            run_id,
            before=before,
            after=after,
            rule=rule,
            k=k,
            threshold=threshold,
            verifier=verifier,
        )
    if as_json:
        print_json(report)
        return
    print_report(report, by=by)
    print_scoring(report.threshold, report.verifier)
