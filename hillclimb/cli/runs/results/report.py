"""Prints the before/after report of a run: the same numbers as `/evals/report`, as tables."""

from __future__ import annotations

from hillclimb.cli.console import out, print_table, print_text, table
from hillclimb.protocol.payloads.results.reports import (
    ComparisonPayload,
    DecodingComparison,
    ReportPayload,
    Span,
)

VERDICT_STYLE = {
    "improved": "green",
    "regressed": "red",
    "failing": "red",
    "saturated": "cyan",
    "inconclusive": "yellow",
}
SINGLE = ("environment", "n>", "rate %>")
COLUMNS = ("environment", "n>", "before %>", "after %>", "delta>", "p>", "verdict")


def print_report(report: ReportPayload) -> None:
    """Print one table per decoding: environments, seen and held-out templates, all tasks.

    A run with a single evaluation has no comparison: its table shows that evaluation.
    """
    is_single = report.before_step == report.after_step
    columns, row = (SINGLE, _single_row) if is_single else (COLUMNS, comparison_row)
    steps = f"step {report.before_step}"
    steps += "" if is_single else f" → {report.after_step}"
    for decoding, comparison in report.comparisons.items():
        out.print(
            f"\n[bold]{decoding}[/bold] (temperature {comparison.temperature:g}),"
            f" pass@{report.k} at {steps} with 95 % intervals"
        )
        rows = [row(key, env[decoding]) for key, env in report.environments.items()]
        rows.append(row("templates seen", comparison.seen_templates))
        rows.append(row("templates new", comparison.held_out_templates))
        rows.append(row("[bold]all[/bold]", comparison))
        print_table(table(columns, rows))
        _print_early_stops(report, comparison)
        if not is_single:
            _print_power(report, decoding, comparison)
    if not is_single and report.rule != "v1":
        out.print(_claim(report), style="dim")


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
            f"{key} {'none' if c.detectable is None else f'{100 * c.detectable:+.0f}'}"
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
    """Return the cells of `COLUMNS` for one sample."""
    verdict = comparison.verdict.upper()
    style = VERDICT_STYLE.get(comparison.verdict)
    delta = comparison.delta
    p_value = comparison.p_value if comparison.p_adjusted is None else comparison.p_adjusted
    return [
        name,
        comparison.n,
        rate_with_interval(comparison.before, comparison.before_interval),
        rate_with_interval(comparison.after, comparison.after_interval),
        "–" if delta is None else f"{100 * delta:+.1f}",
        p_value_text(p_value),
        f"[{style}]{verdict}[/{style}]" if style else verdict,
    ]


def _single_row(name: str, comparison: ComparisonPayload) -> list[object]:
    return [name, comparison.n, rate_with_interval(comparison.after, comparison.after_interval)]


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
