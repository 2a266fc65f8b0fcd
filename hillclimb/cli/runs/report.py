"""Prints the before/after report of a run: the same numbers as `/evals/report`, as tables."""

from __future__ import annotations

from hillclimb.cli.console import out, percent, print_table, table
from hillclimb.protocol.payloads.results.reports import ComparisonPayload, ReportPayload, Span

VERDICT_STYLE = {
    "improved": "green",
    "regressed": "red",
    "failing": "red",
    "saturated": "cyan",
    "inconclusive": "yellow",
}
SINGLE = ("environment", "n>", "pass@1>")
COLUMNS = ("environment", "n>", "before>", "after>", "delta>", "p>", "verdict")


def print_report(report: ReportPayload) -> None:
    """Print one table per decoding: environments, seen and held-out templates, all tasks.

    A run with a single evaluation has no comparison: its table shows that evaluation.
    """
    is_single = report.before_step == report.after_step
    columns, row = (SINGLE, _single_row) if is_single else (COLUMNS, _row)
    steps = f"step {report.before_step}"
    steps += "" if is_single else f" → {report.after_step}"
    for decoding, comparison in report.comparisons.items():
        out.print(
            f"\n[bold]{decoding}[/bold] (temperature {comparison.temperature:g}),"
            f" pass@1 at {steps} with 95 % intervals"
        )
        rows = [row(key, env[decoding]) for key, env in report.environments.items()]
        rows.append(row("templates seen", comparison.seen_templates))
        rows.append(row("templates never seen", comparison.held_out_templates))
        rows.append(row("[bold]all[/bold]", comparison))
        print_table(table(columns, rows))


def _row(name: str, comparison: ComparisonPayload) -> list[object]:
    verdict = comparison.verdict.upper()
    style = VERDICT_STYLE.get(comparison.verdict)
    delta = comparison.delta
    return [
        name,
        comparison.n,
        _with_interval(comparison.before, comparison.before_interval),
        _with_interval(comparison.after, comparison.after_interval),
        "–" if delta is None else f"{100 * delta:+.1f}",
        _p_value(comparison.p_value),
        f"[{style}]{verdict}[/{style}]" if style else verdict,
    ]


def _single_row(name: str, comparison: ComparisonPayload) -> list[object]:
    return [name, comparison.n, _with_interval(comparison.after, comparison.after_interval)]


def _with_interval(rate: float | None, interval: Span) -> str:
    low, high = interval
    return f"{percent(rate)} ({100 * low:.0f}–{100 * high:.0f})"


def _p_value(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
