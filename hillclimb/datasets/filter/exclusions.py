"""Tasks and environments that are left out, as data: with a reason, a source and an end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from trainer.contract.datasets.rows import Storable, TaskRow
from trainer.contract.sections import Section

MAX_AT_ONCE = 5000
"""Exclusions in one request: a validation of a large dataset finds many."""
MAX_REASON = 1000
"""Characters of a reason."""


class Exclusion(Section):
    """One task, or one environment with all its tasks, that is neither trained on nor measured."""

    scope: Literal["task", "env"]
    """What `key` names."""
    key: Annotated[Storable, Field(min_length=1, max_length=512)]
    """Key of the task or of the environment."""
    reason: Annotated[Storable, Field(min_length=1, max_length=MAX_REASON)]
    """Why, for whoever wonders later."""
    source: Literal["user", "validation", "lint"] = "user"
    """Who found it."""
    expires_at: AwareDatetime | None = None
    """When it ends by itself: a quarantine; null is for good."""

    def is_active(self, now: datetime) -> bool:
        """Whether it counts at a moment (with a time zone)."""
        return self.expires_at is None or now < self.expires_at


def exclude_failed(row: Mapping[str, Any]) -> Exclusion:
    """Return the exclusion of a task that a validation found to fail, from its row as JSON."""
    reason = f"{row['reason']}: {row['detail'] or 'no detail'}".replace("\0", "\ufffd")
    reason = reason.encode(errors="replace").decode()  # environments may say anything
    return Exclusion(
        scope="task", key=row["task_key"], reason=reason[:MAX_REASON], source="validation"
    )


class Exclusions:
    """Exclusions that count at one moment, ready to be asked about many rows."""

    def __init__(self, exclusions: Iterable[Exclusion], now: datetime) -> None:
        self._tasks: dict[str, Exclusion] = {}
        self._envs: dict[str, Exclusion] = {}
        for exclusion in exclusions:
            if exclusion.is_active(now):
                table = self._tasks if exclusion.scope == "task" else self._envs
                table.setdefault(exclusion.key, exclusion)

    def of(self, row: TaskRow) -> Exclusion | None:
        """Return what excludes a row: an exclusion of the task itself before one of its env."""
        return self._tasks.get(row.key) or self._envs.get(row.env_key)

    def reasons(self, rows: Iterable[TaskRow]) -> Mapping[str, str]:
        """Return the reason of each excluded row, by key: `source: reason`."""
        found = {row.key: self.of(row) for row in rows}
        return {
            key: f"{exclusion.source}: {exclusion.reason}"
            for key, exclusion in found.items()
            if exclusion is not None
        }

    def unused(self, rows: Iterable[TaskRow]) -> tuple[Exclusion, ...]:
        """Return those that name no row, sorted by key."""
        keys, envs = set(), set()
        for row in rows:
            keys.add(row.key)
            envs.add(row.env_key)
        idle = [e for key, e in self._tasks.items() if key not in keys]
        idle += [e for key, e in self._envs.items() if key not in envs]
        return tuple(sorted(idle, key=lambda each: each.key))
