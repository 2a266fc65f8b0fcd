"""Faults of single tasks that lint can exclude."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.rows import TaskRow
from hillclimb.datasets.format.table import CURRENT_DATE
from hillclimb.datasets.lint.dates import partial_dates
from hillclimb.datasets.lint.findings import RULES

FaultCode = Literal[
    "current_date_missing",
    "env_variables_missing",
    "modality_not_trainable",
]
"""Findings about a single task, independent of the other tasks."""


def needed_dates(row: TaskRow) -> tuple[str, ...]:
    """Return the partial dates of a task's prompt; none where the task has a CURRENT_DATE."""
    if row.variable_texts.get(CURRENT_DATE, "").strip():
        return ()
    return partial_dates(row.prompt)


def needs_eyes(row: TaskRow) -> bool:
    """Tell whether a task needs screenshots (`computer_use`, `browser_use`)."""
    return row.task_modality != "tool_use"


_HAS: Mapping[FaultCode, Callable[[TaskRow], bool]] = {
    "current_date_missing": lambda row: bool(needed_dates(row)),
    "env_variables_missing": lambda row: not row.env_variables,
    "modality_not_trainable": needs_eyes,
}


def exclude_faulty(rows: Iterable[TaskRow], codes: Iterable[FaultCode]) -> Iterator[Exclusion]:
    """Yield an exclusion for each task that has one of these faults; its first one is the reason.

    Reasons are the same for all tasks with one fault: they are counted by reason.
    """
    distinct = tuple(dict.fromkeys(codes))
    for row in rows if distinct else ():
        code = next((code for code in distinct if _HAS[code](row)), None)
        if code is not None:
            reason = f"{code}: {RULES[code].about}"
            yield Exclusion(scope="task", key=row.key, reason=reason, source="lint")
