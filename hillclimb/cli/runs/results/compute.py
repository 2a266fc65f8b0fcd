"""`compute`: the ledger of what training and evaluations of a run took."""

from __future__ import annotations

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.terminal.console import out, print_json, print_table, print_text, table
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.protocol.payloads.results.compute import (
    ComputeAmounts,
    ComputePayload,
    ComputeTotals,
    LedgerEntry,
)

COLUMNS = ("", "rollouts>", "learned>", "rejected>", "tokens>", "trained>", "FLOPs>")
EVAL_COLUMNS = ("step>", "decoding", "rollouts>", "tokens>", "FLOPs>")
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")


@main.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@command
def compute(*, run_id: str, as_json: bool) -> None:
    """Show what RUN took: rollouts, tokens and FLOPs of training and of evaluations.

    Rejected rollouts, repeated steps and interrupted ones count: they were spent. `compare --at`
    compares two runs after equal amounts.
    """
    with connect() as client:
        ledger = client.compute(run_id)
    if as_json:
        print_json(ledger)
        return
    if not ledger.rows:
        print_text("nothing was counted yet" if ledger.is_complete else _gap())
        return
    rows = [*_rows("", ledger)]
    if len(ledger.attempts) > 1:
        rows += [
            row for each in ledger.attempts for row in _rows(f"attempt {each.attempt}, ", each)
        ]
    print_table(table(COLUMNS, rows))
    out.print(_rejected(ledger), style="dim")
    evaluations = [row for row in ledger.rows if row.kind == "eval" and row.is_complete]
    if evaluations:
        out.print("\n[bold]training before each evaluation[/bold]")
        print_table(table(EVAL_COLUMNS, [_eval_row(row) for row in evaluations]))
    if not ledger.is_complete:
        print_text(_gap(), style="yellow")


def si(value: float | None) -> str:
    """Return an amount with three digits and the prefix of its magnitude, such as `1.23M`."""
    if value is None:
        return "unknown"
    number, prefixes = float(value), iter(PREFIXES)
    prefix = next(prefixes)
    while number >= 999.5 and prefix != PREFIXES[-1]:
        number, prefix = number / 1000.0, next(prefixes)
    return f"{number:.3g}{prefix}"


def _rows(prefix: str, totals: ComputeTotals) -> list[list[object]]:
    return [
        [
            f"{prefix}{name}",
            amounts.num_rollouts,
            amounts.num_learned if name == "training" else "–",
            amounts.num_rejected if name == "training" else "–",
            si(amounts.num_tokens),
            si(amounts.num_trained_tokens),
            si(amounts.flops),
        ]
        for name, amounts in (("training", totals.training), ("evaluation", totals.evaluation))
    ]


def _eval_row(row: LedgerEntry) -> list[object]:
    return [
        row.step,
        row.decoding,
        row.cumulative_rollouts,
        si(row.cumulative_tokens),
        si(row.cumulative_flops),
    ]


def _rejected(ledger: ComputePayload) -> str:
    training: ComputeAmounts = ledger.training
    others = training.num_rejected - training.num_resampled - training.num_ungraded
    interrupted = sum(not row.is_complete for row in ledger.rows)
    return (
        f"rejected: {training.num_resampled} replaced by dynamic sampling,"
        f" {training.num_ungraded} without a grade, {others} without signal;"
        f" {training.num_lost_tries} tries lost to infra errors;"
        f" {ledger.num_repeated_steps} steps repeated, {interrupted} interrupted"
    )


def _gap() -> str:
    return "the trainer did not count the compute of every step: the sums are lower bounds"
