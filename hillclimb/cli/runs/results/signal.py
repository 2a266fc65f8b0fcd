"""`signal`: what training can learn from each environment."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import out, percent, print_json, print_table, print_text, table
from hillclimb.cli.terminal.env_reference import ENV_REFERENCE
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.results.signal import SignalFigures

COLUMNS = (
    "environment",
    "groups>",
    "signal>",
    "steps>",
    "all 0>",
    "all 1>",
    "variance>",
    "reading",
)


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option("--window", type=click.IntRange(min=1), help="Only the newest so many steps.")
@click.option("--env", type=ENV_REFERENCE, help="Only this environment.")
@command
def signal(*, run_id: str, window: int | None, env: str | None, as_json: bool) -> None:
    """Show what training of RUN can learn from each environment.

    Signal is the share of groups whose scores differ, "steps" the share of steps with such a group:
    below 25 % an environment is too hard or too easy.
    """
    with connect() as client:
        report = client.signal(run_id, window=window, env=env)
    if as_json:
        print_json(report)
        return
    if report.last_step is None:
        print_text("no training step has ended yet")
        return
    clipped = "" if report.clip_ratio is None else f", {report.clip_ratio:.2%} of tokens clipped"
    out.print(f"[bold]signal[/bold], steps {report.first_step} to {report.last_step}{clipped}")
    rows = [_row(key, figures) for key, figures in report.environments.items()]
    print_table(table(COLUMNS, [*rows, _row("all", report.all)]))
    for key, figures in report.environments.items():
        print_text(f"{key}: {figures.why}", style="dim")


def _row(name: str, figures: SignalFigures) -> list[object]:
    variance = figures.variance_per_prompt
    return [
        name,
        figures.num_groups,
        percent(figures.signal_ratio),
        percent(figures.signal_steps),
        percent(figures.all_zero_ratio),
        percent(figures.all_one_ratio),
        "–" if variance is None else f"{variance:.3f}",
        figures.reading.upper().replace("_", " "),
    ]
