"""Prints the before/after report of a run: the same numbers as `/evals/report`, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hillclimb.cli.console import out, percent, print_table, table

VERDICT_STYLE = {
    "improved": "green",
    "regressed": "red",
    "failing": "red",
    "saturated": "cyan",
    "inconclusive": "yellow",
}
SINGLE = ("environment", "n>", "pass@1>")
COLUMNS = ("environment", "n>", "before>", "after>", "delta>", "p>", "verdict")


def print_report(report: Mapping[str, Any]) -> None:
    """Print one table per decoding: environments, seen and held-out templates, all tasks.

    A run with a single evaluation has no comparison: its table shows that evaluation.
    """
    is_single = report["before_step"] == report["after_step"]
    columns, row = (SINGLE, _single_row) if is_single else (COLUMNS, _row)
    steps = f"step {report['before_step']}"
    steps += "" if is_single else f" → {report['after_step']}"
    for decoding in report["decodings"]:
        whole = report[decoding]
        out.print(
            f"\n[bold]{decoding}[/bold] (temperature {whole['temperature']:g}),"
            f" pass@1 at {steps} with 95 % intervals"
        )
        rows = [row(key, env[decoding]) for key, env in report["environments"].items()]
        rows.append(row("templates seen", whole["seen_templates"]))
        rows.append(row("templates never seen", whole["held_out_templates"]))
        rows.append(row("[bold]all[/bold]", whole))
        print_table(table(columns, rows))


def _row(name: str, numbers: Mapping[str, Any]) -> list[object]:
    verdict = numbers["verdict"].upper()
    style = VERDICT_STYLE.get(numbers["verdict"])
    delta = numbers["delta"]
    return [
        name,
        numbers["n"],
        _with_interval(numbers["before"], numbers["before_interval"]),
        _with_interval(numbers["after"], numbers["after_interval"]),
        "–" if delta is None else f"{100 * delta:+.1f}",
        _p_value(numbers["p_value"]),
        f"[{style}]{verdict}[/{style}]" if style else verdict,
    ]


def _single_row(name: str, numbers: Mapping[str, Any]) -> list[object]:
    return [name, numbers["n"], _with_interval(numbers["after"], numbers["after_interval"])]


def _with_interval(rate: float | None, interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{percent(rate)} ({100 * low:.0f}–{100 * high:.0f})"


def _p_value(p_value: float | None) -> str:
    if p_value is None:
        return "–"
    return "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
