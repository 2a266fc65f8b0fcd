"""What can be wrong with one task by itself, so that it can be found, named and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

from trainer.contract.datasets.dates import PartialDates, partial_dates
from trainer.contract.datasets.exclusions import Exclusion
from trainer.contract.datasets.findings import RULES
from trainer.contract.datasets.rows import TaskRow
from trainer.contract.datasets.table import CURRENT_DATE

FaultCode = Literal[
    "current_date_missing",
    "current_date_unsure",
    "env_variables_missing",
    "modality_not_trainable",
]
"""Findings that name single tasks, whatever the other tasks are."""


def needed_dates(row: TaskRow) -> PartialDates:
    """Return the words of a task's prompt that need a CURRENT_DATE which the task does not have."""
    if row.env_variables.get(CURRENT_DATE, "").strip():
        return PartialDates()
    return partial_dates(row.prompt)


def needs_eyes(row: TaskRow) -> bool:
    """Whether a task is played by looking at a screen."""
    return row.task_modality != "tool_use"


_HAS: Mapping[FaultCode, Callable[[TaskRow], bool]] = {
    "current_date_missing": lambda row: bool(needed_dates(row).sure),
    "current_date_unsure": lambda row: bool(needed_dates(row).unsure),
    "env_variables_missing": lambda row: not row.env_variables,
    "modality_not_trainable": needs_eyes,
}


def exclude_faulty(rows: Iterable[TaskRow], codes: Iterable[FaultCode]) -> Iterator[Exclusion]:
    """Yield an exclusion for each task that has one of these faults; its first one is the reason.

    Reasons are the same for all tasks with one fault: they are counted by reason.
    """
    wanted = tuple(dict.fromkeys(codes))
    for row in rows if wanted else ():
        code = next((each for each in wanted if _HAS[each](row)), None)
        if code is not None:
            reason = f"{code}: {RULES[code].about}"
            yield Exclusion(scope="task", key=row.key, reason=reason, source="lint")
