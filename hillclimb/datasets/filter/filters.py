"""Which rows of a file enter a version, and which of them are duplicates.

The order is: modality, environment, difficulty, `max_tasks`, duplicates; exclusions come after it.
The historic script (fleet-ai/SkyRL, `prepare_dataset.py`) has the same order, and differs so:

* it takes the first `max_tasks` rows of the file *before* it removes duplicates. That is
  `max_tasks_by: file_order`; the default takes the tasks of lowest rank after duplicates were
  removed, so that the order of the file makes no difference;
* it drops rows without `task_modality` when a modality is asked for; here such rows are `tool_use`;
* it counts rows without a key or prompt until it meets them; here they are problems of the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from trainer.contract.datasets.ranks import salted_rank
from trainer.contract.datasets.rows import Modality, TaskRow, fingerprint
from trainer.contract.sections import EnvKey, Section


class FilterOptions(Section):
    """Which rows of a file enter a version; everything is taken unless a filter says otherwise."""

    modality: Modality | None = None
    """Take tasks of one modality."""
    env_keys: tuple[EnvKey, ...] | None = None
    """Take tasks of these environments."""
    difficulty: tuple[Annotated[int, Field(ge=1, le=3)], ...] | None = None
    """Take tasks of these difficulties; tasks without one are left out then."""
    max_tasks: Annotated[int, Field(ge=1)] | None = None
    """Take at most so many tasks."""
    max_tasks_by: Literal["rank", "file_order"] = "rank"
    """`rank`: those of lowest rank, whatever the order of the file, after duplicates were removed;
    `file_order`: the first rows of the file, duplicates included, as the historic script does."""
    copies: Literal["keep", "drop"] = "keep"
    """What to do with tasks that ask the same (environment, prompt and env_variables) under another
    key: `keep` and report them, or `drop` all but the one with the first key."""

    @model_validator(mode="after")
    def _filters_take_something(self) -> Self:
        for name in ("env_keys", "difficulty"):
            if getattr(self, name) == ():
                raise ValueError(
                    f"{name} is empty, which takes nothing: name some, or leave it out"
                )
        if self.max_tasks is None and self.max_tasks_by != "rank":
            raise ValueError("max_tasks_by does nothing without max_tasks: set it or leave it out")
        return self


Place = tuple[str, Modality, int | None]
"""Environment, modality and difficulty of a row."""


class Duplicate(Section):
    """Rows of a file that had the key of an earlier row; the first one was taken."""

    key: str
    env_key: str
    count: int
    """Rows beside the first."""
    differing: int
    """How many of them said something else than the first; the order of the file decides then."""


class Copies(Section):
    """Tasks that ask the same under different keys."""

    env_key: str
    keys: tuple[str, ...]
    """Sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """What the filters took, and what became of the rest."""

    rows: tuple[TaskRow, ...]
    """Sorted by key, each key once."""
    prints: dict[str, str]
    """Fingerprint of each row, by key."""
    num_read: int
    dropped: dict[str, int]
    """Rows that each filter left out, by its name; `duplicates` and `copies` among them."""
    duplicates: tuple[Duplicate, ...]
    copies: tuple[Copies, ...]
    seen: frozenset[Place]
    """What the file had, whether it was taken or not."""


@dataclass(slots=True)
class _Repeats:
    """The rows that had one key, while they are counted."""

    count: int = 0
    differing: int = 0


@dataclass(slots=True)
class _Tally:
    num_read: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    repeats: dict[str, _Repeats] = field(default_factory=dict)
    seen: set[Place] = field(default_factory=set)


def filter_rows(rows: Iterable[TaskRow], options: FilterOptions, *, salt: int) -> Filtered:
    """Apply the filters to rows in the order of their file. `salt` orders them for `max_tasks`."""
    tally = _Tally()
    first: dict[str, TaskRow] = {}
    for row in _wanted(rows, options, tally):
        if row.key in first:
            repeats = tally.repeats.setdefault(row.key, _Repeats())
            repeats.count += 1
            repeats.differing += first[row.key] != row
            tally.dropped["duplicates"] += 1
        else:
            first[row.key] = row
    taken = [first[key] for key in sorted(first)]
    if options.max_tasks is not None and len(taken) > options.max_tasks:
        tally.dropped["max_tasks"] += len(taken) - options.max_tasks
        taken.sort(key=lambda row: salted_rank(row.key, salt))
        taken = sorted(taken[: options.max_tasks], key=lambda row: row.key)
    prints = {row.key: fingerprint(row) for row in taken}
    copies = _copies(taken, prints)
    if options.copies == "drop":
        extra = {key for each in copies for key in each.keys[1:]}
        tally.dropped["copies"] += len(extra)
        taken = [row for row in taken if row.key not in extra]
    return Filtered(
        rows=tuple(taken),
        prints={row.key: prints[row.key] for row in taken},
        num_read=tally.num_read,
        dropped={name: count for name, count in sorted(tally.dropped.items()) if count},
        duplicates=tuple(
            Duplicate(key=key, env_key=first[key].env_key, count=n.count, differing=n.differing)
            for key, n in sorted(tally.repeats.items())
        ),
        copies=copies,
        seen=frozenset(tally.seen),
    )


def _wanted(rows: Iterable[TaskRow], options: FilterOptions, tally: _Tally) -> Iterable[TaskRow]:
    """Yield the rows that no filter leaves out, and count the others."""
    limit = options.max_tasks if options.max_tasks_by == "file_order" else None
    num_taken = 0
    for row in rows:
        tally.num_read += 1
        tally.seen.add((row.env_key, row.task_modality, row.difficulty))
        fault = _filter_against(row, options)
        if fault is None and limit is not None and num_taken >= limit:
            fault = "max_tasks"
        if fault is not None:
            tally.dropped[fault] += 1
            continue
        num_taken += 1
        yield row


def _filter_against(row: TaskRow, options: FilterOptions) -> str | None:
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
