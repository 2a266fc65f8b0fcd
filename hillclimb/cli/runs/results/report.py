"""Prints the before/after report of a run: the same numbers as `/evals/report`, as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from hillclimb.cli.terminal.console import out, print_table, print_text, table
from hillclimb.protocol.payloads.results.reports import (
    BreakdownRow,
    ChangePayload,
    ComparisonPayload,
    DecodingComparison,
    ReportPayload,
    Span,
)
from hillclimb.stats.intervals import points_text

VERDICT_STYLE = {
    "improved": "green",
    "regressed": "red",
    "failing": "red",
    "saturated": "cyan",
    "inconclusive": "yellow",
}
Sides = tuple[str, str]
IN_TIME: Sides = ("before", "after")
"""What the two evaluations of a table are to each other, where nothing else is said."""
ENVIRONMENT = "environment"
BREAKDOWNS = {"difficulty": "difficulties", "modality": "modalities"}
"""Values of `--by` that have no verdicts, with their keys in a payload."""
Compared = ComparisonPayload | ChangePayload

by_option = click.option(
    "--by", type=click.Choice([ENVIRONMENT, *BREAKDOWNS]), default=ENVIRONMENT, show_default=True,
    help="Rows of the table; difficulty and modality are estimates without a verdict.",
)  # fmt: skip


def print_report(report: ReportPayload, *, by: str = ENVIRONMENT) -> None:
    """Print one table per decoding: environments, seen and held-out templates, all tasks.

    A run with a single evaluation has no comparison: its table shows that evaluation. `by` replaces
    the environments by difficulties or modalities.
    """
    is_single = report.before_step == report.after_step
    steps = f"step {report.before_step}"
    steps += "" if is_single else f" → {report.after_step}"
    for decoding, comparison in report.comparisons.items():
        out.print(
            f"\n[bold]{decoding}[/bold] (temperature {comparison.temperature:g}),"
            f" pass@{report.k} at {steps} with 95 % intervals"
        )
        if by != ENVIRONMENT:
            print_breakdown(by, getattr(comparison, BREAKDOWNS[by]), is_single=is_single)
            _print_early_stops(report, comparison)
            continue
        rows: dict[str, ComparisonPayload] = {
            key: env[decoding] for key, env in report.environments.items()
        }
        rows["templates seen"] = comparison.seen_templates
        rows["templates new"] = comparison.held_out_templates
        rows["[bold]all[/bold]"] = comparison
        if is_single:
            print_singles(ENVIRONMENT, rows)
        else:
            print_comparisons(rows)
        _print_early_stops(report, comparison)
        if not is_single:
            _print_power(report, decoding, comparison)
    if by == ENVIRONMENT and not is_single and report.rule != "v1":
        out.print(_claim(report), style="dim")


def print_comparisons(rows: Mapping[str, ComparisonPayload], *, sides: Sides = IN_TIME) -> None:
    """Print the table of comparisons with verdicts, and pass@n where more was sampled."""
    names, cells = _at_n_cells(rows, sides)
    lines = [[*comparison_row(key, each), *cells[key]] for key, each in rows.items()]
    columns = (ENVIRONMENT, *_estimates(sides), "p>", "verdict", *names)
    print_table(table(columns, lines))


def _estimates(sides: Sides) -> Sequence[str]:
    return ("n>", *(f"{side} %>" for side in sides), "delta>")


def print_breakdown(
    by: str,
    rows: Mapping[str, BreakdownRow],
    *,
    is_single: bool = False,
    sides: Sides = IN_TIME,
) -> None:
    """Print the table of estimates by difficulty or modality."""
    if is_single:
        print_singles(by, rows)
        return
    names, cells = _at_n_cells(rows, sides)
    lines = [
        [
            key,
            each.n,
            rate_with_interval(each.before, each.before_interval),
            rate_with_interval(each.after, each.after_interval),
            points_text(each.delta),
            *cells[key],
        ]
        for key, each in rows.items()
    ]
    print_table(table([by, *_estimates(sides), *names], lines))
    print_text("estimates with 95 % intervals: only environments have verdicts", style="dim")


def print_singles(by: str, rows: Mapping[str, Compared]) -> None:
    """Print the table of one evaluation."""
    names, cells = _at_n_cells(rows)
    lines = [
        [key, each.n, rate_with_interval(each.after, each.after_interval), *cells[key][1:]]
        for key, each in rows.items()
    ]
    print_table(table([by, "n>", "rate %>", *(name.replace(" after", "") for name in names[1:])],
                      lines))  # fmt: skip


def _at_n_cells(
    rows: Mapping[str, Compared], sides: Sides = IN_TIME
) -> tuple[Sequence[str], dict[str, Sequence[str]]]:
    """Return columns and cells of pass@n on both sides; none where k is n already."""
    changes = {key: getattr(each, "pass_at_n", None) for key, each in rows.items()}
    n = max((each.k for each in changes.values() if each is not None), default=None)
    if n is None:
        return (), dict.fromkeys(rows, ())
    return tuple(f"pass@{n} {side} %>" for side in sides), {
        key: ("", "")
        if each is None
        else (
            rate_with_interval(each.before, each.before_interval),
            rate_with_interval(each.after, each.after_interval),
        )
        for key, each in changes.items()
    }


def _print_early_stops(report: ReportPayload, comparison: DecodingComparison) -> None:
    stops = {
        report.before_step: comparison.before_stopped_early,
        report.after_step: comparison.after_stopped_early,
    }
    for step, stop in stops.items():
        if stop is not None:
            print_text(f"step {step} {stop.sentence}", style="dim")


def _print_power(report: ReportPayload, decoding: str, overall: ComparisonPayload) -> None:
    """Print the smallest gains that could have been shown, where none was."""
    samples = {key: env[decoding] for key, env in report.environments.items()} | {"all": overall}
    unclear = {k: c for k, c in samples.items() if c.verdict in ("flat", "inconclusive")}
    if unclear:
        gains = (
            f"{key} {'none' if c.detectable is None else points_text(c.detectable, 0)}"
            for key, c in unclear.items()
        )
        out.print(f"smallest gain shown (points, power 0.8): {', '.join(gains)}", style="dim")


def _claim(report: ReportPayload) -> str:
    """Return what p stands for, as a sentence."""
    chosen = (
        f"step {report.after_step} may have been chosen from {report.num_candidates} evaluations"
        if report.num_candidates > 1
        else f"step {report.after_step} was planned"
    )
    return (
        f"rule {report.rule}: {chosen}; p is corrected for this, for looks and for environments"
        " (docs/verdicts.md)"
    )


def comparison_row(name: str, comparison: ComparisonPayload) -> list[object]:
    """Return the cells of `print_comparisons` for one sample."""
    verdict = comparison.verdict.upper()
    style = VERDICT_STYLE.get(comparison.verdict)
    p_value = comparison.p_value if comparison.p_adjusted is None else comparison.p_adjusted
    return [
        name,
        comparison.n,
        rate_with_interval(comparison.before, comparison.before_interval),
        rate_with_interval(comparison.after, comparison.after_interval),
        points_text(comparison.delta),
        p_value_text(p_value),
        f"[{style}]{verdict}[/{style}]" if style else verdict,
    ]


def rate_with_interval(rate: float | None, interval: Span) -> str:
    """Return a rate in [0, 1] and its interval as `53.2 (48–58)`, in percent."""
    low, high = interval
    share = "–" if rate is None else f"{100 * rate:.1f}"
    return f"{share} ({100 * low:.0f}–{100 * high:.0f})"


def p_value_text(p_value: float | None) -> str:
    """Return a p-value with three decimals, or a dash."""
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
