"""Filters that select the rows of a version, and detection of duplicates and copies.

The order is: modality, environment, difficulty, `max_tasks`, duplicates; exclusions follow. The
historic script (fleet-ai/SkyRL, `prepare_dataset.py`) has the same order, with these differences:

* it selects the first `max_tasks` rows of the file *before* it removes duplicates. That is
  `max_tasks_by: file_order`; the default selects the tasks of lowest rank after removing
  duplicates, so that the order of the file makes no difference;
* it drops rows without `task_modality` if a modality is set; here such rows are `tool_use`;
* it drops rows without a key; here they are problems of the file;
* of rows with one key it takes the first, also if that one has no prompt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from hillclimb.datasets.format.ranks import salted_rank
from hillclimb.datasets.format.rows import (
    FileRow,
    Modality,
    PromptlessRow,
    TaskRow,
    fingerprint,
)
from hillclimb.spec.section import EnvKey, Section


class FilterOptions(Section):
    """Filters of the rows of a version; by default all rows are selected."""

    modality: Modality | None = None
    """Only tasks of this modality."""
    env_keys: tuple[EnvKey, ...] | None = None
    """Only tasks of these environments."""
    difficulty: tuple[Annotated[int, Field(ge=1, le=3)], ...] | None = None
    """Only tasks of these difficulties; tasks without a difficulty are then left out."""
    max_tasks: Annotated[int, Field(ge=1)] | None = None
    """Limit of tasks (count)."""
    max_tasks_by: Literal["rank", "file_order"] = "rank"
    """`rank`: those of lowest rank, whatever the order of the file, after duplicates were removed;
    `file_order`: the first rows of the file, duplicates included, as the historic script does."""
    copies: Literal["keep", "drop"] = "keep"
    """Treatment of copies, that is, tasks with the same environment, prompt and env_variables under
    another key: `keep` and report them, or `drop` all but the one with the first key."""

    empty_prompts: Literal["refuse", "drop"] = "refuse"
    """Treatment of rows without a prompt: `refuse` the file, or `drop` them and report their keys.
    Of those that are dropped, `md5_threshold` counts keys towards the size of an environment, as
    the historic script does."""

    @model_validator(mode="after")
    def _filters_take_something(self) -> Self:
        for name in ("env_keys", "difficulty"):
            if getattr(self, name) == ():
                raise ValueError(
                    f"{name} is empty, which selects no task: name some, or leave it out"
                )
        if self.max_tasks is None and self.max_tasks_by != "rank":
            raise ValueError("max_tasks_by has no effect without max_tasks: set it or leave it out")
        return self


Place = tuple[str, Modality, int | None]
"""Environment, modality and difficulty of a row."""


class Duplicate(Section):
    """Rows of a file with the key of an earlier row, which was selected."""

    key: str
    env_key: str
    count: int
    """Rows beside the first."""
    differing: int
    """Rows that differ from the first one; the order of the file decides then (count)."""


class Copies(Section):
    """Tasks with the same content under different keys."""

    env_key: str
    keys: tuple[str, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """Selected rows, and counts of the dropped ones."""

    rows: tuple[TaskRow, ...]
    """Sorted by key, each key once."""
    prints: dict[str, str]
    """Fingerprint of each row, by key."""
    num_read: int
    dropped: dict[str, int]
    """Rows that each filter left out, by its name; `duplicates` and `copies` among them."""
    duplicates: tuple[Duplicate, ...]
    copies: tuple[Copies, ...]
    promptless: tuple[PromptlessRow, ...]
    """Selected by the filters and dropped without a prompt; sorted by key, each key once."""
    seen: frozenset[Place]
    """Environments, modalities and difficulties in the file, selected or not."""


@dataclass(slots=True)
class _Repeats:
    """Counts of repeated rows with one key."""

    count: int = 0
    differing: int = 0


@dataclass(slots=True)
class _Tally:
    num_read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repeats: dict[str, _Repeats] = field(default_factory=dict)
    seen: set[Place] = field(default_factory=set)
    promptless: dict[str, PromptlessRow] = field(default_factory=dict)


def filter_rows(rows: Iterable[FileRow], options: FilterOptions, *, salt: int) -> Filtered:
    """Apply the filters to rows in the order of their file. `salt` orders them for `max_tasks`."""
    tally = _Tally()
    first: dict[str, TaskRow] = {}
    for row in _filtered(rows, options, tally):
        if row.key in first:
            repeats = tally.repeats.setdefault(row.key, _Repeats())
            repeats.count += 1
            repeats.differing += first[row.key] != row
            tally.dropped["duplicates"] += 1
        else:
            first[row.key] = row
    selected = [first[key] for key in sorted(first)]
    if options.max_tasks is not None and len(selected) > options.max_tasks:
        tally.dropped["max_tasks"] += len(selected) - options.max_tasks
        selected.sort(key=lambda row: salted_rank(row.key, salt))
        selected = sorted(selected[: options.max_tasks], key=lambda row: row.key)
    prints = {row.key: fingerprint(row) for row in selected}
    copies = _copies(selected, prints)
    if options.copies == "drop":
        extra = {key for each in copies for key in each.keys[1:]}
        tally.dropped["copies"] += len(extra)
        selected = [row for row in selected if row.key not in extra]
    return Filtered(
        rows=tuple(selected),
        prints={row.key: prints[row.key] for row in selected},
        num_read=tally.num_read,
        dropped={name: count for name, count in sorted(tally.dropped.items()) if count},
        duplicates=tuple(
            Duplicate(key=key, env_key=first[key].env_key, count=n.count, differing=n.differing)
            for key, n in sorted(tally.repeats.items())
        ),
        copies=copies,
        promptless=tuple(row for _, row in sorted(tally.promptless.items())),
        seen=frozenset(tally.seen),
    )


def _filtered(rows: Iterable[FileRow], options: FilterOptions, tally: _Tally) -> Iterable[TaskRow]:
    """Yield the tasks that pass all filters, and count the other rows."""
    limit = options.max_tasks if options.max_tasks_by == "file_order" else None
    num_selected = 0
    for row in rows:
        tally.num_read += 1
        tally.seen.add((row.env_key, row.task_modality, row.difficulty))
        fault = _filter_against(row, options)
        if fault is None and limit is not None and num_selected >= limit:
            fault = "max_tasks"
        if fault is not None:
            tally.dropped[fault] += 1
            continue
        num_selected += 1
        if isinstance(row, TaskRow):
            yield row
        else:
            tally.dropped["empty_prompts"] += 1
            tally.promptless[row.key] = row


def _filter_against(row: FileRow, options: FilterOptions) -> str | None:
    if options.modality is not None and row.task_modality != options.modality:
        return "modality"
    if options.env_keys is not None and row.env_key not in options.env_keys:
        return "env_keys"
    if options.difficulty is not None and row.difficulty not in options.difficulty:
        return "difficulty"
    return None


def _copies(rows: Iterable[TaskRow], prints: dict[str, str]) -> tuple[Copies, ...]:
    """Return the groups of tasks with one fingerprint, sorted by their first key."""
    groups: dict[str, list[TaskRow]] = {}
    for row in rows:
        groups.setdefault(prints[row.key], []).append(row)
    return tuple(
        Copies(env_key=group[0].env_key, keys=tuple(row.key for row in group))
        for group in groups.values()
        if len(group) > 1
    )
