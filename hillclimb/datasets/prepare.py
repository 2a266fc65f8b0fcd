"""Makes a version of a dataset: filters, exclusions, split, table and lint, in that order."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pydantic import Field

from hillclimb.datasets.filter.exclusions import Exclusion, Exclusions
from hillclimb.datasets.filter.filters import (
    Copies,
    Duplicate,
    Filtered,
    FilterOptions,
    filter_rows,
)
from hillclimb.datasets.format.lineage import Lineage, SplitRow
from hillclimb.datasets.format.rows import DatasetError, FileRow, TaskRow, content_hash
from hillclimb.datasets.format.stored import split_line
from hillclimb.datasets.format.table import EnvCounts, count_by_env
from hillclimb.datasets.lint.build_version import find_barred, find_cut_below_minimum, find_making
from hillclimb.datasets.lint.faults import FaultCode, exclude_faulty
from hillclimb.datasets.lint.findings import Finding
from hillclimb.datasets.lint.lint import LintOptions, lint
from hillclimb.datasets.lint.tool_tokens import ToolCount
from hillclimb.datasets.split.policies import RankPolicy, SplitPolicy
from hillclimb.datasets.split.splits import make_split
from hillclimb.spec.section import Section


class PrepareOptions(Section):
    """Options of a version: filters, split policy and lint."""

    filters: FilterOptions = Field(default_factory=FilterOptions)
    """Filters of its rows."""
    split: SplitPolicy = Field(default_factory=RankPolicy)
    """Policy of its split into train and eval."""
    lint: LintOptions = Field(default_factory=LintOptions)
    """Thresholds of its lint."""
    exclude_by_lint: tuple[FaultCode, ...] = ()
    """Lint codes whose tasks are excluded from training and evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A version of a dataset, ready to be stored."""

    rows: tuple[TaskRow, ...]
    """Sorted by key: train, eval and excluded ones."""
    split: tuple[SplitRow, ...]
    """One for each row, in the same order."""
    table: tuple[EnvCounts, ...]
    """By environment, in order of name."""
    findings: tuple[Finding, ...]
    """Errors first."""
    num_read: int
    """Rows of the file without a problem."""
    dropped: dict[str, int]
    """Rows that each filter left out, by its name."""
    empty_prompts: tuple[str, ...]
    """Keys of the rows that were dropped without a prompt, sorted."""
    duplicates: tuple[Duplicate, ...]
    copies: tuple[Copies, ...]
    content_hash: str
    """SHA-256 of the canonical rows."""
    split_hash: str
    """SHA-256 of the split table."""
    digest: str
    """SHA-256 of the two; runs are bound to it."""


def prepare(
    rows: Iterable[FileRow],
    options: PrepareOptions,
    *,
    now: datetime,
    lineage: Lineage | None = None,
    exclusions: Iterable[Exclusion] = (),
    measured: Mapping[str, ToolCount] | None = None,
) -> Prepared:
    """Make a version from rows in the order of their file.

    Args:
        rows: consumed once; only the selected ones are kept in memory.
        options: filters, split policy and lint.
        now: the time (with a time zone) at which exclusions apply.
        lineage: uses of tasks in *all* earlier versions; None for a first version.
        exclusions: tasks and environments to leave out.
        measured: token counts of the environments' tools from runs, for lint.

    Raises:
        DatasetError: no task is left, or no split follows the policy.
    """
    filtered = _filtered(rows, options)
    faulty = exclude_faulty(filtered.rows, options.exclude_by_lint)
    active = Exclusions((*exclusions, *faulty), now)
    split_by = partial(
        make_split,
        filtered.rows,
        filtered.prints,
        excluded=active.reasons(filtered.rows),
        lineage=lineage or Lineage(),
        promptless=[row for row in filtered.promptless if active.of(row) is None],
    )
    split = split_by(options.split)
    by_key = {each.key: each for each in split}
    table = count_by_env(filtered.rows, by_key)
    env_of = {row.key: row.env_key for row in filtered.rows}
    findings = [
        *find_making(filtered, options.filters, options.split, active.unused(filtered.rows)),
        *find_cut_below_minimum(options.split, table, split_by, env_of),
    ]
    if lineage is not None and lineage.train_keys:
        findings += find_barred(options.split, table, split_by, by_key, env_of)
    content, division = content_hash(filtered.rows), split_hash(split)
    return Prepared(
        rows=filtered.rows,
        split=split,
        table=table,
        findings=lint(filtered.rows, by_key, table, options.lint, findings, measured),
        num_read=filtered.num_read,
        dropped=filtered.dropped,
        empty_prompts=tuple(row.key for row in filtered.promptless),
        duplicates=filtered.duplicates,
        copies=filtered.copies,
        content_hash=content,
        split_hash=division,
        digest=version_digest(content, division),
    )


def _filtered(rows: Iterable[FileRow], options: PrepareOptions) -> Filtered:
    salt = options.split.salt if isinstance(options.split, RankPolicy) else 0
    filtered = filter_rows(rows, options.filters, salt=salt)
    if not filtered.rows:
        left_out = ", ".join(f"{name} {count}" for name, count in filtered.dropped.items())
        raise DatasetError(
            f"no task is left of {filtered.num_read} rows ({left_out or 'the file has none'}):"
            " widen the filters, or check the file"
        )
    return filtered


def split_hash(split: Sequence[SplitRow]) -> str:
    """Return the SHA-256 over the split lines, each with a newline, sorted by key."""
    digest = hashlib.sha256()
    for row in sorted(split, key=lambda row: row.key):
        digest.update(split_line(row) + b"\n")
    return digest.hexdigest()


def version_digest(content: str, division: str) -> str:
    """Return the SHA-256 of a version from those of its rows and of its split table."""
    return hashlib.sha256(f"{content}\n{division}".encode()).hexdigest()
