"""The ledger as Markdown, in the tables of the team's experiment log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hillclimb.stats.trajectories.patterns.pattern import Severity

ORDER = tuple(severity.value for severity in Severity)
"""Severities, the worst first."""


def ledger_markdown(issues: Sequence[Mapping[str, Any]]) -> str:
    """Return two tables: the issues by severity, and their shares before and after with status.

    `issues` are facts as from `Measuring.issue_facts`. Each share has its 95 % interval.
    """
    ordered = sorted(issues, key=lambda each: (ORDER.index(each["severity"]), each["number"]))
    if not ordered:
        return "No issues.\n"
    lines = ["| Issue | Severity | Description | Impact |", "|---|---|---|---|"]
    lines += [
        f"| **{each['number']}. {_cell(each['title'])}** | {each['severity'].upper()}"
        f" | {_cell(each['description'])} | {_cell(each['impact'])} |"
        for each in ordered
    ]
    lines += [
        "",
        "| Issue | Measured by | Baseline | After | p | Status |",
        "|---|---|---|---|---|---|",
    ]
    lines += [_measured_row(each) for each in ordered]
    rules = sorted({each["measured"]["rule"] for each in ordered})
    versions = sorted({v for each in ordered if (v := each["measured"]["detectors"]) is not None})
    lines += ["", _footnote(rules, versions)]
    return "\n".join(lines) + "\n"


def _measured_row(issue: Mapping[str, Any]) -> str:
    measured = issue["measured"]
    where = f" in {issue['env_key']}" if issue["env_key"] is not None else ""
    p_value = measured["p_value"]
    p_text = "–" if p_value is None else "<0.001" if p_value < 0.001 else f"{p_value:.3f}"
    status = str(measured["status"]).upper().replace("_", " ")
    closed = "" if issue["closed_at"] is None else ", closed"
    return (
        f"| {issue['number']}. {_cell(issue['title'])} | `{issue['symptom']}`{_cell(where)}"
        f" | {_share(measured['before'], issue['baseline'])}"
        f" | {_share(measured['after'], issue['after'])} | {p_text} | {status}{closed} |"
    )


def _share(rate: Mapping[str, Any] | None, place: Mapping[str, Any] | None) -> str:
    if rate is None or place is None:
        return "–"
    percents = [f"{100 * rate[end]:.0f}" for end in ("low", "high")]
    return (
        f"{100 * rate['value']:.1f}% ({'–'.join(percents)}) of {rate['num_rollouts']}"
        f" at {place['run_id']}@{place['step']}"
    )


def _footnote(rules: Sequence[str], versions: Sequence[int]) -> str:
    detectors = ""
    if versions:
        noun = "versions" if len(versions) > 1 else "version"
        detectors = f", detectors of {noun} {' and '.join(map(str, versions))}"
    return (
        "Shares of rollouts, averaged over tasks, with 95 % intervals; exact two-sided p of each"
        f" issue alone; rule {', '.join(rules)}{detectors}."
    )


def _cell(text: str) -> str:
    """Return text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")
