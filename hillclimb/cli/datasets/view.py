"""Prints versions of datasets: environments, exclusions, lint findings, differences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.markup import escape

from hillclimb.cli.terminal.console import out, print_table, print_text, table
from hillclimb.protocol.payloads.datasets.diffs import DiffPayload
from hillclimb.protocol.payloads.datasets.lint import FindingPayload
from hillclimb.protocol.payloads.datasets.versions import EnvCountsPayload, VersionPayload

STYLES = {"error": "red", "warning": "yellow", "info": "dim"}
MAX_LINES = 5
"""Duplicates, differences and other items listed before the remaining ones are only counted."""
WIDTH = 78


def print_version(version: VersionPayload) -> None:
    """Print a version in full."""
    name = f"{version.name}@{version.number}"
    print_text(f"{name}  {version.id}  from {version.source}", style="bold")
    counts = f"{version.num_tasks:,} tasks: {version.num_train:,} train"
    counts += f", {version.num_eval:,} eval, {version.num_excluded:,} excluded"
    print_text(f"{counts}  ({version.size_bytes / 1e6:,.1f} MB)")
    print_text(f"digest {version.digest[:16]}…  split by {_policy(version.options['split'])}")
    if version.note:
        print_text(version.note)
    print_environments(version.envs)
    _print_left_out(version)
    print_findings(version.lint)


def print_environments(envs: Mapping[str, EnvCountsPayload], *, stderr: bool = False) -> None:
    """Print the counts of each environment of a version, and their sums."""
    columns = ("environment", "train>", "eval>", "different>", "excluded>", "dated>", "variables>")
    counts = {key: _counts(env) for key, env in envs.items()}
    rows: list[list[object]] = [[key, *row] for key, row in counts.items()]
    if len(envs) > 1:
        rows.append(["[bold]all[/bold]", *map(sum, zip(*counts.values(), strict=True))])
    print_table(table(columns, rows), stderr=stderr)


def _counts(env: EnvCountsPayload) -> tuple[int, ...]:
    return (
        env.train,
        env.eval,
        env.unique_eval,
        env.excluded,
        env.with_current_date,
        env.with_env_variables,
    )


def print_findings(findings: Sequence[FindingPayload]) -> None:
    """Print the findings of lint, errors first, each remedy once per code."""
    counts = {severity: sum(each.severity == severity for each in findings) for severity in STYLES}
    print_text(
        f"lint: errors {counts['error']}, warnings {counts['warning']}, notes {counts['info']}"
    )
    for number, each in enumerate(findings):
        where = f"{each.env_key}: " if each.env_key else ""
        _print_wrapped(f"{each.severity:<8}", f"{where}{each.message}", STYLES[each.severity])
        if each.severity == "info":
            continue
        if each.examples:
            _print_wrapped("", f"such as {'; '.join(each.examples[:2])}", "dim")
        following = findings[number + 1].code if number + 1 < len(findings) else None
        if following != each.code:
            _print_wrapped("", f"→ {each.remedy}", "dim")


def print_diff(diff: DiffPayload) -> None:
    """Print the differences between two versions."""
    counts = diff.counts
    print_text(
        f"{diff.before} → {diff.after}: {counts.added:,} added,"
        f" {counts.removed:,} removed, {counts.changed:,} changed,"
        f" {counts.moved:,} moved, {diff.unchanged:,} the same"
    )
    if diff.by_env:
        columns = ("environment", "added>", "removed>", "changed>", "moved>")
        rows = [
            (env.env_key, env.added, env.removed, env.changed, env.moved) for env in diff.by_env
        ]
        print_table(table(columns, rows))
    _print_some("added", counts.added, (task.key for task in diff.added))
    _print_some("removed", counts.removed, (task.key for task in diff.removed))
    changes = (f"{task.key} ({', '.join(task.fields)})" for task in diff.changed)
    _print_some("changed", counts.changed, changes)
    moves = (f"{task.key} ({task.before} → {task.after})" for task in diff.moved)
    _print_some("moved", counts.moved, moves)


def _print_left_out(version: VersionPayload) -> None:
    """Print the rows of the file that are dropped or excluded, with the reasons."""
    for filter_name, count in version.dropped.items():
        print_text(f"left out by {filter_name}: {count:,} of {version.num_read:,} rows")
    num_empty = version.dropped.get("empty_prompts", 0)
    _print_some("left out without a prompt", num_empty, version.empty_prompts)
    for reason, count in version.excluded.items():
        _print_wrapped("", f"{count:,} excluded: {reason}", "dim")
    if any(each.count for each in version.duplicates):
        keys = (each.key for each in version.duplicates)
        _print_some("repeated keys", version.num_duplicates, keys)
    if version.num_copies:
        copies = (" = ".join(each.keys[:3]) for each in version.copies)
        _print_some("the same under other keys", version.num_copies, copies)
    if version.ignored_fields:
        names = ", ".join(version.ignored_fields)
        _print_wrapped("", f"unknown fields, not stored: {names}", "dim")


def _print_some(what: str, count: int, lines: Iterable[str]) -> None:
    first = [line for line, _ in zip(lines, range(MAX_LINES), strict=False)]
    if first:
        print_text(f"{what}:")
    for line in first:
        print_text(f"  {line}")
    if count > len(first):
        print_text(f"  and {count - len(first):,} more", style="dim")


def _print_wrapped(label: str, text: str, style: str) -> None:
    lines = textwrap.wrap(text, WIDTH - 10, break_on_hyphens=False, break_long_words=False)
    for number, line in enumerate(lines):
        head = label if number == 0 else ""
        out.print(f"  [{style}]{head:<8}[/{style}]{escape(line)}", soft_wrap=True, style="")


def _policy(split: Mapping[str, Any]) -> str:
    parameters = {name: value for name, value in split.items() if name in ("eval_ratio", "salt")}
    details = ", ".join(f"{name} {value}" for name, value in parameters.items())
    return f"{split['policy']} ({details})" if details else str(split["policy"])
