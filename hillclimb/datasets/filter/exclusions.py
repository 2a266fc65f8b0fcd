"""Exclusions of tasks and environments, each with a reason, a source and an expiry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from hillclimb.datasets.format.rows import FileRow, Storable, TaskRow
from hillclimb.protocol.validation import TaskValidation
from hillclimb.spec.section import Moment, Section

MAX_AT_ONCE = 5000
"""Limit of exclusions per request: a validation of a large dataset may need many."""
MAX_REASON = 1000
"""Characters of a reason."""


class Exclusion(Section):
    """Exclusion of a task, or of an environment, from training and evaluation."""

    scope: Literal["task", "env"]
    """Kind of `key`."""
    key: Annotated[Storable, Field(min_length=1, max_length=512)]
    """Key of the task or of the environment."""
    reason: Annotated[Storable, Field(min_length=1, max_length=MAX_REASON)]
    """Reason in words."""
    source: Literal["user", "validation", "lint"] = "user"
    """Origin of the exclusion."""
    expires_at: Moment | None = None
    """Expiry of a temporary exclusion (a quarantine); null: permanent."""

    def is_active(self, now: datetime) -> bool:
        """Tell whether it applies at a time (with a time zone)."""
        return self.expires_at is None or now < self.expires_at


def exclude_failed(row: TaskValidation) -> Exclusion:
    """Return the exclusion of a task that failed a validation."""
    reason = f"{row.reason}: {row.detail or 'no detail'}".replace("\0", "\ufffd")
    reason = reason.encode(errors="replace").decode()  # environments may return any text
    return Exclusion(
        scope="task", key=row.task_key, reason=reason[:MAX_REASON], source="validation"
    )


class Exclusions:
    """Exclusions that apply at one time, indexed by task and environment."""

    def __init__(self, exclusions: Iterable[Exclusion], now: datetime) -> None:
        self._tasks: dict[str, Exclusion] = {}
        self._envs: dict[str, Exclusion] = {}
        for exclusion in exclusions:
            if exclusion.is_active(now):
                table = self._tasks if exclusion.scope == "task" else self._envs
                table.setdefault(exclusion.key, exclusion)

    def of(self, row: FileRow) -> Exclusion | None:
        """Return the exclusion of a row: that of the task itself before that of its environment."""
        return self._tasks.get(row.key) or self._envs.get(row.env_key)

    def reasons(self, rows: Iterable[TaskRow]) -> Mapping[str, str]:
        """Return the reason of each excluded row, by key: `source: reason`."""
        exclusions = {row.key: self.of(row) for row in rows}
        return {
            key: f"{exclusion.source}: {exclusion.reason}"
            for key, exclusion in exclusions.items()
            if exclusion is not None
        }

    def unused(self, rows: Iterable[TaskRow]) -> tuple[Exclusion, ...]:
        """Return the exclusions that match no row, sorted by key."""
        keys, envs = set(), set()
        for row in rows:
            keys.add(row.key)
            envs.add(row.env_key)
        idle = [e for key, e in self._tasks.items() if key not in keys]
        idle += [e for key, e in self._envs.items() if key not in envs]
        return tuple(sorted(idle, key=lambda each: each.key))
